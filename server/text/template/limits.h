// What a template may cost, and how rendering stops: one exception type, caught in ChatTemplate.
//
// Threads: one Budget per render. Errors: every charge may throw RenderError(kLimit).
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace assay::jinja {

// kRaised: the template called raise_exception. kRuntime: a Python error (TypeError, UndefinedError, ...). kLimit: too
// costly.
enum class ErrorKind { kRaised, kRuntime, kLimit };

class RenderError : public std::exception {
 public:
  RenderError(ErrorKind kind, std::string message) : kind_(kind), message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  ErrorKind kind() const { return kind_; }
  const std::string& message() const { return message_; }

 private:
  ErrorKind kind_;
  std::string message_;
};

[[noreturn]] inline void fail(std::string message) { throw RenderError(ErrorKind::kRuntime, std::move(message)); }

struct Limits {
  int64_t max_steps = 20'000'000;            // evaluated nodes, visited items, 64-byte blocks of text
  int64_t max_output_bytes = 64 << 20;       // of the prompt
  int64_t max_created_bytes = 512LL << 20;   // of all strings and containers made on the way
  int max_depth = 700;                       // nested expressions, statements and macro calls
  int max_value_depth = 256;                 // nested lists and dicts
};

// Kept apart from Limits so that a nested value can be refused where it is made, without a Budget at hand.
inline constexpr int kMaxValueDepth = Limits{}.max_value_depth;

class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}

  void step(int64_t count = 1) {
    steps_ += count;
    if (steps_ > limits_.max_steps) limit("steps", limits_.max_steps);
  }
  // Work over `bytes` of existing text.
  void scan(size_t bytes) { step(static_cast<int64_t>(bytes / 64) + 1); }
  // About to create `bytes`; call before the allocation. `bytes` may be as large as a product of two sizes.
  void create(int64_t bytes) {
    if (bytes > limits_.max_created_bytes - created_bytes_) limit("created bytes", limits_.max_created_bytes);
    created_bytes_ += bytes;
    step(bytes / 64);
  }
  void output(size_t total_bytes) const {
    if (static_cast<int64_t>(total_bytes) > limits_.max_output_bytes) limit("output bytes", limits_.max_output_bytes);
  }
  void enter() {
    if (++depth_ > limits_.max_depth) {
      --depth_;
      limit("nested evaluations", limits_.max_depth);
    }
  }
  void leave() { --depth_; }

 private:
  [[noreturn]] static void limit(const char* what, int64_t most) {
    throw RenderError(ErrorKind::kLimit,
                      "the chat template needs more than " + std::to_string(most) + " " + what + " for this request");
  }

  Limits limits_;
  int64_t steps_ = 0;
  int64_t created_bytes_ = 0;
  int depth_ = 0;
};

class DepthGuard {
 public:
  explicit DepthGuard(Budget& budget) : budget_(budget) { budget_.enter(); }
  ~DepthGuard() { budget_.leave(); }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  Budget& budget_;
};

}  // namespace assay::jinja
