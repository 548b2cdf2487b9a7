// How busy the client itself was during a level: the share of its one core, and how late its event loop ran.
//
// Owns: nothing of the run; a ClientLoadMeter belongs to the I/O thread. Threads: that thread only. Errors: none.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <string>
#include <vector>

#include "server/sweep/statistics.h"

namespace assay::sweep {

struct ClientLoad {
  double cpu_share = 0.0;  // CPU time of the I/O thread / wall time; 1 = its core was never idle
  Distribution lag_ms;     // how late a timer that was due every kLagPeriod ran

  static constexpr double kBusyShare = 0.85;
  static constexpr double kLateMs = 20.0;  // at the 99th percentile

  // Why the numbers of the level may be the client's instead of the server's; empty: no reason.
  std::string bottleneck() const;
};

class ClientLoadMeter {
 public:
  explicit ClientLoadMeter(boost::asio::any_io_executor executor);

  boost::asio::awaitable<void> sample_lag();  // until stop()
  ClientLoad stop();

 private:
  boost::asio::steady_timer timer_;
  bool stopped_ = false;
  std::chrono::steady_clock::time_point wall_start_;
  double cpu_start_s_;
  std::vector<double> lag_ms_;
};

}  // namespace assay::sweep
