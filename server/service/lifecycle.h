// Where the server stands: loading, serving, draining or dead. The one truth behind /health, /ready, gRPC health and whether
// a request is taken.
//
// Threads: any. Errors: Unavailable with the reason.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/service/text_service.h"

namespace assay {

class Lifecycle {
 public:
  // The model is loaded; requests are taken from now on.
  void loaded(std::shared_ptr<TextService> service) {
    loaded_at_ = std::time(nullptr);
    service_.store(std::move(service));
  }

  // No new requests from now on; idempotent.
  void drain() {
    draining_ = true;
    if (const auto service = service_.load()) service->drain();
  }
  bool draining() const { return draining_; }

  // The service while it can be asked anything; Unavailable while loading and after the engine has died.
  absl::StatusOr<std::shared_ptr<TextService>> alive() const {
    std::shared_ptr<TextService> service = service_.load();
    if (service == nullptr) return absl::UnavailableError("the model is still loading");
    if (!service->engine().stats().healthy) return absl::UnavailableError("the engine has failed; see the server's log");
    return service;
  }

  // The service while it takes requests: alive and not draining.
  absl::StatusOr<std::shared_ptr<TextService>> accepting() const {
    if (draining_) return absl::UnavailableError("the server is shutting down");
    return alive();
  }

  int64_t loaded_at() const { return loaded_at_; }  // seconds since 1970; 0 = not yet

 private:
  std::atomic<std::shared_ptr<TextService>> service_;
  std::atomic<bool> draining_{false};
  std::atomic<int64_t> loaded_at_{0};
};

}  // namespace assay
