#include "server/sweep/sweep.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>

#include "server/sweep/arrivals.h"
#include "server/sweep/calibration.h"
#include "server/sweep/compare.h"
#include "server/sweep/grpc_client.h"
#include "server/sweep/load_runner.h"
#include "server/sweep/options.h"
#include "server/sweep/request_factory.h"
#include "server/sweep/results.h"

namespace assay {
namespace sweep {
namespace {

constexpr int64_t kMinRequestsPerLevel = 16, kRequestsPerSlot = 4;
constexpr double kDefaultRateSeconds = 30.0;

void complain(const std::string& what) {
  std::fprintf(stderr, "assay sweep: %s\n", what.c_str());
}

// A stream needs a descriptor; the usual soft limit of 1,024 is near a level of 512 with its reconnects.
void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);  // a refusal shows up as failed connections
}

// Runs one side errand to its end.
template <class Result>
Result wait_for(boost::asio::io_context& io, boost::asio::awaitable<Result> errand) {
  std::optional<Result> result;
  boost::asio::co_spawn(io, std::move(errand), [&result](std::exception_ptr error, Result value) {
    if (error) std::rethrow_exception(error);
    result = std::move(value);
  });
  io.restart();
  io.run();
  return *std::move(result);
}

// One run: the server, what is known of it, and the levels done so far.
class SweepRun {
 public:
  explicit SweepRun(SweepOptions options) : client_(io_, options.target, options.api_key, clock_) {
    run_.options = std::move(options);
    if (!run_.options.grpc_address.empty()) {
      grpc_client_.emplace(io_, run_.options.grpc_address, run_.options.target.tls, run_.options.api_key, clock_);
    }
    run_.started_at = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  }

  int execute() {
    if (const absl::Status status = prepare(); !status.ok()) {
      complain(std::string(status.message()));
      return 1;
    }
    const size_t levels =
        std::max(run_.options.request_rates.size(), run_.options.rate_mode() ? 0 : run_.options.concurrency.size());
    for (size_t i = 0; i < levels; ++i) {
      run_level_number(i);
      if (!save()) return 1;
    }
    std::printf("\n%s", to_table(run_).c_str());
    if (!run_.options.output_dir.empty()) {
      std::printf("\nresults: %s/results.json, results.csv, frontier.svg\n", run_.options.output_dir.c_str());
    }
    const bool all_served = std::all_of(run_.levels.begin(), run_.levels.end(),
                                        [](const LevelResult& level) { return level.summary.completed > 0; });
    return all_served ? 0 : 1;
  }

 private:
  absl::Status prepare() {
    absl::StatusOr<PromptPlan> prompts = read_prompts();
    if (!prompts.ok()) return prompts.status();
    absl::StatusOr<std::string> model = wait_for(io_, find_model(client_, run_.options));
    if (!model.ok()) return model.status();
    run_.model = *model;
    run_.server = wait_for(io_, describe_server(client_));
    if (prompts->dataset.empty()) {
      Calibration calibration = wait_for(io_, calibrate(client_, run_.options, run_.model));
      prompts->costs = std::move(calibration.costs);
      run_.notes = std::move(calibration.notes);
    }
    run_.prompt_method = !prompts->dataset.empty() ? "dataset"
                         : !prompts->text.empty()  ? "prompt file"
                                                   : prompts->costs.method;
    const std::string salt = fmt::format("sweep-{:08x}{:08x}", std::random_device()(), std::random_device()());
    factory_.emplace(run_.options, run_.model, *std::move(prompts), salt);
    return absl::OkStatus();
  }

  absl::StatusOr<PromptPlan> read_prompts() {
    const SweepOptions& options = run_.options;
    PromptPlan plan;
    plan.seed = options.seed;
    plan.input_tokens = options.input_tokens;
    plan.shared_prefix_tokens = options.shared_prefix_tokens;
    const std::string& file = options.dataset_file.empty() ? options.prompt_file : options.dataset_file;
    if (file.empty()) return plan;
    absl::StatusOr<std::string> text = read_file(file);
    if (!text.ok()) return text.status();
    if (options.dataset_file.empty()) {
      if (text->empty()) return absl::InvalidArgumentError("--prompt-file " + file + " is empty");
      plan.text = *std::move(text);
      return plan;
    }
    absl::StatusOr<std::vector<DatasetEntry>> dataset = parse_dataset(*text);
    if (!dataset.ok()) return absl::InvalidArgumentError(file + ": " + std::string(dataset.status().message()));
    const bool has_messages =
        std::any_of(dataset->begin(), dataset->end(), [](auto& e) { return !e.messages_json.empty(); });
    if (has_messages && !options.chat) return absl::InvalidArgumentError(file + ": \"messages\" lines need --chat");
    plan.dataset = *std::move(dataset);
    return plan;
  }

  LevelPlan plan_level(size_t number) const {
    const SweepOptions& options = run_.options;
    LevelPlan plan;
    plan.timeout_s = options.timeout_s;
    plan.requests = options.requests_per_level;
    plan.seconds = options.seconds;
    if (options.rate_mode()) {
      plan.concurrency = options.concurrency.empty() ? 0 : options.concurrency.front();
      const double seconds = plan.requests > 0 || plan.seconds > 0.0 ? plan.seconds : kDefaultRateSeconds;
      plan.arrivals_s =
          plan_arrivals({options.request_rates[number], options.burstiness, plan.requests, seconds, options.seed});
      return plan;
    }
    plan.concurrency = options.concurrency[number];
    if (plan.requests == 0 && plan.seconds == 0.0) {
      plan.requests = std::max<int64_t>(kMinRequestsPerLevel, kRequestsPerSlot * plan.concurrency);
    }
    return plan;
  }

  void run_level_number(size_t number) {
    LevelPlan plan = plan_level(number);
    LevelResult level;
    level.concurrency = plan.concurrency;
    if (run_.options.rate_mode()) level.request_rate = run_.options.request_rates[number];
    const RequestMaker make = [this](uint64_t index) { return factory_->request(index); };
    warm_up(plan, make);
    const std::optional<MetricsSnapshot> before = wait_for(io_, fetch_metrics(client_));
    plan.first_index = next_index_;
    const std::string name = level_name(level);
    const LevelRun run =
        run_level(io_, load_client(), clock_, make, plan, [&](const LevelProgress& p) { show_progress(name, p); });
    const std::optional<MetricsSnapshot> after = wait_for(io_, fetch_metrics(client_));
    next_index_ += run.records.size();
    if (before && after) {
      level.metrics_change = counter_changes(*before, *after);
      level.meter_worst = after->worst;
    }
    level.client = run.client;
    level.summary = summarize(run.records, run_.options.goodput, run_.options.rate_mode());
    show_level(level);
    note_prompt_lengths(level);
    run_.levels.push_back(std::move(level));
  }

  // Made prompts should have the length that was asked for, by the server's own count.
  void note_prompt_lengths(const LevelResult& level) {
    const LevelSummary& s = level.summary;
    const bool made = run_.options.dataset_file.empty() && run_.options.prompt_file.empty();
    if (!made || s.completed == 0 || s.missing_usage > 0 || s.input_tokens == s.completed * run_.options.input_tokens)
      return;
    run_.notes.push_back(fmt::format("level {}: prompts had {:.1f} tokens on average, not {}", level_name(level),
                                     static_cast<double>(s.input_tokens) / static_cast<double>(s.completed),
                                     run_.options.input_tokens));
  }

  void warm_up(const LevelPlan& level, const RequestMaker& make) {
    if (run_.options.warmup == 0) return;
    LevelPlan plan;
    plan.requests = run_.options.warmup;
    plan.concurrency = level.concurrency > 0 ? level.concurrency : 1;
    plan.timeout_s = level.timeout_s;
    plan.first_index = next_index_;
    next_index_ += run_level(io_, load_client(), clock_, make, plan, nullptr).records.size();
  }

  LoadClient& load_client() {
    if (grpc_client_) return *grpc_client_;
    return client_;
  }

  static void show_progress(const std::string& name, const LevelProgress& p) {
    if (isatty(STDERR_FILENO) == 0) return;
    std::fprintf(stderr, "\rlevel %s: %.0f s, %lld sent, %lld ended, %lld tokens   ", name.c_str(), p.elapsed_s,
                 static_cast<long long>(p.sent), static_cast<long long>(p.ended), static_cast<long long>(p.tokens));
  }

  static void show_level(const LevelResult& level) {
    const LevelSummary& s = level.summary;
    std::string line =
        fmt::format("level {}: {} of {} completed in {:.1f} s", level_name(level), s.completed, s.sent, s.duration_s);
    if (s.ttft_ms.count > 0) {
      line += fmt::format(", {:.1f} out tok/s, median TTFT {:.1f} ms", s.output_tokens_per_s, s.ttft_ms.median);
    }
    if (s.tpot_ms.count > 0) line += fmt::format(", median TPOT {:.2f} ms", s.tpot_ms.median);
    if (!level_warnings(level).empty()) line += " !";
    std::fprintf(stderr, "%s%s\n", isatty(STDERR_FILENO) == 0 ? "" : "\r\033[K", line.c_str());
  }

  // After every level, so that an interrupted run keeps what it has measured.
  bool save() const {
    const std::string& folder = run_.options.output_dir;
    if (folder.empty()) return true;
    absl::Status status = write_results(run_, folder);
    const absl::StatusOr<FrontierRun> curve = frontier_run(to_json(run_));
    if (status.ok())
      status = curve.ok() ? write_file(folder + "/frontier.svg", draw_frontier({*curve})) : curve.status();
    if (!status.ok()) complain(std::string(status.message()));
    return status.ok();
  }

  boost::asio::io_context io_{1};
  RunClock clock_;
  HttpClient client_;                      // of everything but the load where grpc_client_ is set
  std::optional<GrpcClient> grpc_client_;
  RunResult run_;
  std::optional<RequestFactory> factory_;
  uint64_t next_index_ = 0;
};

}  // namespace
}  // namespace sweep

int run_sweep(int argc, char** argv) {
  const auto parsed = sweep::parse_options(argc, argv);
  if (const int* status = std::get_if<int>(&parsed)) return *status;
  const sweep::Command& command = std::get<sweep::Command>(parsed);
  if (const auto* compare = std::get_if<sweep::CompareOptions>(&command)) return sweep::run_compare(*compare);
  sweep::raise_file_limit();
  return sweep::SweepRun(std::get<sweep::SweepOptions>(command)).execute();
}

}  // namespace assay
