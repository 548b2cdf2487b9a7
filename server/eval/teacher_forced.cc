#include "server/eval/teacher_forced.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "server/eval/model_run.h"
#include "server/eval/pool_measure.h"
#include "server/eval/tool_arguments.h"

namespace assay {
namespace {

constexpr int64_t kMostBytes = int64_t{6} << 30;  // of the distributions of one window
constexpr size_t kTop = 5;

using Windows = std::vector<std::vector<int32_t>>;

// Each window starts with what the tokenizer puts in front of a text; the last one may be shorter.
absl::StatusOr<Windows> make_windows(const Tokenizer& tokenizer, const std::string& text, const TextOptions& options) {
  std::vector<int32_t> tokens = tokenizer.encode(text, false);
  if (options.tokens > 0 && static_cast<int64_t>(tokens.size()) > options.tokens) {
    tokens.resize(static_cast<size_t>(options.tokens));
  }
  std::vector<int32_t> front = tokenizer.encode("", true);
  if (front.empty() || tokenizer.bos_id() != front.front()) front.clear();
  front.resize(std::min<size_t>(front.size(), 1));
  Windows windows;
  const size_t step = static_cast<size_t>(options.context) - front.size();
  for (size_t at = 0; at + 1 < tokens.size(); at += step) {
    std::vector<int32_t> window = front;
    const auto begin = tokens.begin() + static_cast<int64_t>(at);
    window.insert(window.end(), begin, begin + static_cast<int64_t>(std::min(step, tokens.size() - at)));
    if (window.size() > 1) windows.push_back(std::move(window));
  }
  if (windows.empty()) return absl::InvalidArgumentError("the text has fewer than two tokens");
  return windows;
}

// Log probabilities [positions - 1][vocabulary]; entry i belongs to position i + 1 of the window.
using Distributions = std::vector<std::vector<float>>;

Distributions dense(const std::vector<TokenLogprobs>& logprobs, int32_t vocab_size) {
  Distributions rows;
  for (size_t i = 1; i < logprobs.size(); ++i) {
    std::vector<float> row(static_cast<size_t>(vocab_size), -INFINITY);
    for (const auto& [token, logprob] : logprobs[i].top) row[static_cast<size_t>(token)] = logprob;
    rows.push_back(std::move(row));
  }
  return rows;
}

std::array<int32_t, kTop> most_probable(const std::vector<float>& row) {
  std::array<int32_t, kTop> best;
  best.fill(-1);
  for (int32_t token = 0; token < static_cast<int32_t>(row.size()); ++token) {
    int32_t carried = token;
    for (int32_t& place : best) {
      if (place < 0 || row[static_cast<size_t>(carried)] > row[static_cast<size_t>(place)]) std::swap(place, carried);
      if (carried < 0) break;
    }
  }
  return best;
}

double divergence(const std::vector<float>& p, const std::vector<float>& q) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] > -INFINITY) sum += std::exp(static_cast<double>(p[i])) * (static_cast<double>(p[i]) - q[i]);
  }
  return std::max(sum, 0.0);
}

// One pool while its text runs.
struct TextPool {
  ModelRun run;
  PoolMeter meter;
  TextResult result;
  std::vector<double> divergences;

  TextPool(const std::string& spec, ModelRun started) : run(std::move(started)), meter(spec, run) {}
};

void compare(const Distributions& first, const Distributions& other, TextPool& pool) {
  for (size_t i = 0; i < first.size() && i < other.size(); ++i) {
    pool.divergences.push_back(divergence(first[i], other[i]));
    const auto a = most_probable(first[i]), b = most_probable(other[i]);
    pool.result.top1.total += 1;
    pool.result.top1.hits += a[0] == b[0];
    for (int32_t token : a) {
      if (token < 0) continue;  // a vocabulary of fewer tokens
      pool.result.top5.total += 1;
      pool.result.top5.hits += std::find(b.begin(), b.end(), token) != b.end();
    }
  }
}

TextResult finish(TextPool& pool) {
  TextResult& result = pool.result;
  result.nll /= static_cast<double>(std::max<int64_t>(result.positions, 1));
  std::vector<double>& kl = pool.divergences;
  std::sort(kl.begin(), kl.end());
  result.compared = static_cast<int64_t>(kl.size());
  if (!kl.empty()) {
    for (double value : kl) result.kl_mean += value / static_cast<double>(kl.size());
    result.kl_median = quantile(kl, 0.5);
    result.kl_p99 = quantile(kl, 0.99);
    result.kl_max = kl.back();
  }
  result.pool = pool.meter.finish();
  return std::move(result);
}

absl::StatusOr<Distributions> run_window(const std::vector<int32_t>& window, int32_t scores, TextPool& pool) {
  Request request;
  request.prompt = window;
  request.sampling.max_tokens = 0;
  request.sampling.prompt_logprobs = scores;
  const absl::StatusOr<Completion> completion = pool.meter.complete(std::move(request));
  if (!completion.ok()) return completion.status();
  const std::vector<TokenLogprobs>& logprobs = completion->prompt_logprobs;
  for (size_t i = 1; i < logprobs.size(); ++i) pool.result.nll -= static_cast<double>(logprobs[i].logprob);
  pool.result.positions += static_cast<int64_t>(logprobs.size()) - 1;
  if (scores == 0) return Distributions();
  return dense(logprobs, scores);
}

absl::StatusOr<std::unique_ptr<TextPool>> start_pool(const ServeConfig& config, const std::string& spec,
                                                     const Tokenizer& tokenizer, const TextOptions& options) {
  const absl::StatusOr<ServeConfig> pool_config = with_pool(config, spec);
  if (!pool_config.ok()) return pool_config.status();
  // The vocabulary's size is the model's to say; as many scores as there are tokens are allowed then.
  absl::StatusOr<ModelRun> run = ModelRun::start(*pool_config, tokenizer, options.context, options.chunk, INT32_MAX);
  if (!run.ok()) return run.status();
  return std::make_unique<TextPool>(spec, *std::move(run));
}

}  // namespace

absl::StatusOr<std::vector<TextResult>> run_teacher_forced(const ServeConfig& config,
                                                           const std::vector<std::string>& specs,
                                                           const Tokenizer& tokenizer, const std::string& text,
                                                           const TextOptions& options, const Progress& progress) {
  const absl::StatusOr<Windows> windows = make_windows(tokenizer, text, options);
  if (!windows.ok()) return windows.status();
  std::vector<std::unique_ptr<TextPool>> pools;
  for (const std::string& spec : specs) {
    absl::StatusOr<std::unique_ptr<TextPool>> pool = start_pool(config, spec, tokenizer, options);
    if (!pool.ok()) return pool.status();
    pools.push_back(*std::move(pool));
  }
  const int32_t vocab_size = pools[0]->run.engine().model().vocab_size;
  const int64_t bytes = options.context * vocab_size * 20;  // two dense rows and one of the engine's
  if (options.divergence && bytes > kMostBytes) {
    return absl::InvalidArgumentError(
        fmt::format("--context {} with a vocabulary of {} tokens takes {} GiB; use at most {}", options.context,
                    vocab_size, bytes >> 30, kMostBytes / vocab_size / 20));
  }
  const int32_t scores = options.divergence ? vocab_size : 0;
  for (size_t w = 0; w < windows->size(); ++w) {
    Distributions first;
    for (size_t p = 0; p < pools.size(); ++p) {
      absl::StatusOr<Distributions> rows = run_window((*windows)[w], scores, *pools[p]);
      if (!rows.ok()) return rows.status();
      if (p == 0)
        first = *std::move(rows);
      else
        compare(first, *rows, *pools[p]);
      progress(specs[p], static_cast<int64_t>(w) + 1, static_cast<int64_t>(windows->size()));
    }
  }
  std::vector<TextResult> results;
  for (const std::unique_ptr<TextPool>& pool : pools) results.push_back(finish(*pool));
  return results;
}

}  // namespace assay
