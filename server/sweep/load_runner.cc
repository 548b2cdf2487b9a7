#include "server/sweep/load_runner.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <deque>
#include <optional>

#include "server/sweep/stream_recorder.h"

namespace assay::sweep {
namespace {

namespace asio = boost::asio;
constexpr double kMinFailedSlotS = 0.01;
constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);

class LevelRunner {
 public:
  LevelRunner(asio::io_context& io, LoadClient& client, RunClock& clock, const RequestMaker& make,
              const LevelPlan& plan, const ProgressHandler& on_progress)
      : io_(io),
        client_(client),
        clock_(clock),
        make_(make),
        plan_(plan),
        on_progress_(on_progress),
        progress_timer_(io),
        load_(io.get_executor()) {}

  LevelRun run() {
    clock_.restart();
    asio::co_spawn(io_, load_.sample_lag(), asio::detached);
    if (on_progress_) asio::co_spawn(io_, report_progress(), asio::detached);
    if (plan_.arrivals_s.empty()) {
      start_workers();
    } else {
      asio::co_spawn(io_, dispatch_arrivals(), asio::detached);
    }
    io_.restart();
    io_.run();
    return {std::move(records_), client_load_};
  }

 private:
  // ---- concurrency mode: as many workers as requests in flight; each starts the next request when its last one ended.
  void start_workers() {
    const int64_t limit = plan_.requests > 0 ? plan_.requests : plan_.concurrency;
    workers_ = std::min<int64_t>(plan_.concurrency, limit);
    for (int64_t i = 0, count = workers_; i < count; ++i) asio::co_spawn(io_, work(), asio::detached);
  }

  asio::awaitable<void> work() {
    while (may_start()) co_await run_request(std::nullopt);
    if (--workers_ == 0) end_level();
  }

  bool may_start() const {
    return plan_.requests > 0 ? progress_.sent < plan_.requests : clock_.now_s() < plan_.seconds;
  }

  // ---- rate mode: a request that is due waits only for the cap, and keeps the time at which it was due.
  asio::awaitable<void> dispatch_arrivals() {
    asio::steady_timer timer(io_);
    for (const double due_s : plan_.arrivals_s) {
      timer.expires_at(clock_.at(due_s));
      co_await timer.async_wait(kTuple);
      due_.push_back(due_s);
      start_due();
    }
  }

  void start_due() {
    while (!due_.empty() && (plan_.concurrency == 0 || in_flight_ < plan_.concurrency)) {
      ++in_flight_;
      asio::co_spawn(io_, run_arrival(due_.front()), asio::detached);
      due_.pop_front();
    }
  }

  asio::awaitable<void> run_arrival(double due_s) {
    co_await run_request(due_s);
    --in_flight_;
    start_due();
    if (records_.size() == plan_.arrivals_s.size()) end_level();
  }

  // ---- both
  // `due_s`: the latency counts from then; without one from the moment of sending.
  asio::awaitable<void> run_request(std::optional<double> due_s) {
    const LoadRequest load = make_(plan_.first_index + static_cast<uint64_t>(progress_.sent++));
    const double sent_s = clock_.now_s();
    StreamRecorder recorder(due_s.value_or(sent_s), sent_s, load.requested_output_tokens);
    const TransferEnd end = co_await client_.send(load, plan_.timeout_s, recorder);
    records_.push_back(recorder.finish(end, clock_.now_s()));
    ++progress_.ended;
    progress_.tokens += records_.back().output_tokens();
    if (records_.back().outcome != Outcome::kCompleted) co_await hold_slot(sent_s + kMinFailedSlotS);
  }

  // A server that refuses at once would be asked again as fast as the loop can turn; a refused request keeps its slot a
  // while.
  asio::awaitable<void> hold_slot(double until_s) {
    asio::steady_timer timer(io_);
    timer.expires_at(clock_.at(until_s));
    co_await timer.async_wait(kTuple);
  }

  asio::awaitable<void> report_progress() {
    while (!ended_) {
      progress_timer_.expires_after(std::chrono::seconds(1));
      co_await progress_timer_.async_wait(kTuple);
      if (ended_) co_return;
      progress_.elapsed_s = clock_.now_s();
      on_progress_(progress_);
    }
  }

  void end_level() {
    ended_ = true;
    client_load_ = load_.stop();
    progress_timer_.cancel();
  }

  asio::io_context& io_;
  LoadClient& client_;
  RunClock& clock_;
  const RequestMaker& make_;
  const LevelPlan& plan_;
  const ProgressHandler& on_progress_;
  asio::steady_timer progress_timer_;
  ClientLoadMeter load_;
  ClientLoad client_load_;
  std::vector<RequestRecord> records_;
  LevelProgress progress_;
  std::deque<double> due_;
  int64_t workers_ = 0;
  int64_t in_flight_ = 0;
  bool ended_ = false;
};

}  // namespace

LevelRun run_level(asio::io_context& io, LoadClient& client, RunClock& clock, const RequestMaker& make,
                   const LevelPlan& plan, const ProgressHandler& on_progress) {
  return LevelRunner(io, client, clock, make, plan, on_progress).run();
}

}  // namespace assay::sweep
