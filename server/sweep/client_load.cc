#include "server/sweep/client_load.h"

#include <fmt/format.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <ctime>

namespace assay::sweep {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLagPeriod = std::chrono::milliseconds(10);

double thread_cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

std::string ClientLoad::bottleneck() const {
  if (cpu_share >= kBusyShare) return fmt::format("the client used {:.0f} % of its core", cpu_share * 100.0);
  if (lag_ms.count > 0 && lag_ms.p99 >= kLateMs) {
    return fmt::format("the client's event loop ran {:.0f} ms late (p99): other work shares its core", lag_ms.p99);
  }
  return "";
}

ClientLoadMeter::ClientLoadMeter(boost::asio::any_io_executor executor)
    : timer_(std::move(executor)), wall_start_(Clock::now()), cpu_start_s_(thread_cpu_s()) {}

boost::asio::awaitable<void> ClientLoadMeter::sample_lag() {
  while (!stopped_) {
    timer_.expires_after(kLagPeriod);
    const auto [error] = co_await timer_.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
    if (error || stopped_) co_return;
    lag_ms_.push_back(seconds(Clock::now() - timer_.expiry()) * 1e3);
  }
}

ClientLoad ClientLoadMeter::stop() {
  stopped_ = true;
  timer_.cancel();
  ClientLoad load;
  const double wall_s = seconds(Clock::now() - wall_start_);
  load.cpu_share = wall_s > 0.0 ? (thread_cpu_s() - cpu_start_s_) / wall_s : 0.0;
  load.lag_ms = describe(lag_ms_);
  return load;
}

}  // namespace assay::sweep
