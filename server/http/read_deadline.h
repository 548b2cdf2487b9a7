// A time by which a client must have sent something. When it passes, the read under way ends and the connection stays, so that the
// client can be told. Reads do not begin once it has passed.
//
// Threads: the connection's strand.
#pragma once

#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <memory>

#include "server/http/connection.h"

namespace assay::http {

class ReadDeadline {
 public:
  explicit ReadDeadline(Connection& connection) : state_(std::make_shared<State>(connection)) {}
  ~ReadDeadline() { clear(); }
  ReadDeadline(const ReadDeadline&) = delete;
  ReadDeadline& operator=(const ReadDeadline&) = delete;

  // Replaces an earlier one.
  void set(std::chrono::steady_clock::duration time) {
    state_->timer.expires_after(time);
    state_->timer.async_wait([state = state_, number = ++state_->number](const error_code& cancelled) {
      if (cancelled || number != state->number) return;
      state->passed = true;
      state->connection.cancel_read();
    });
  }

  bool passed() const { return state_->passed; }

 private:
  struct State {
    explicit State(Connection& of) : connection(of), timer(of.executor()) {}
    Connection& connection;
    asio::steady_timer timer;
    int number = 0;  // of the wait that counts; a wait may have ended, unheard, when it is replaced
    bool passed = false;
  };

  void clear() {
    ++state_->number;
    state_->timer.cancel();
  }

  std::shared_ptr<State> state_;  // shared with waits that outlive this
};

}  // namespace assay::http
