// engine/api/calibration.h over an executor of its own.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "engine/api/calibration.h"
#include "engine/execute/calibration_file.h"
#include "engine/execute/executor.h"
#include "kernels/kv/radius.h"

namespace assay {
namespace {

constexpr int32_t kEnergyPairs[] = {1, 4, 16};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Shares of the `pairs` most energetic pairs, one of each head, ascending.
std::vector<double> energy_shares(const ChannelMoments& moments, int32_t head_dim, int32_t pairs) {
  std::vector<double> shares;
  const std::vector<int32_t> chosen = outlier_pairs_of(moments, head_dim, pairs);
  const size_t heads = moments.key_amax.size(), dim = static_cast<size_t>(head_dim);
  for (size_t head = 0; head < heads; ++head) {
    const double* k = moments.key.data() + head * dim;
    const double total = std::accumulate(k, k + dim, 0.0);
    double held = 0;
    for (int32_t i = 0; i < pairs; ++i) {
      const int32_t pair = chosen[head * static_cast<size_t>(pairs) + static_cast<size_t>(i)];
      held += k[pair] + k[pair + head_dim / 2];
    }
    shares.push_back(total > 0 ? held / total : 0.0);
  }
  std::sort(shares.begin(), shares.end());
  return shares;
}

// One text through an executor, piece by piece, with the meter's verdicts collected.
class ScoringRun {
 public:
  ScoringRun(Executor& executor, const EngineConfig& config, const ScoreOptions& options)
      : executor_(executor), config_(config), options_(options) {
    scores_.pool = executor.pool();
    scores_.num_layers = executor.model().num_layers;
    scores_.num_heads = executor.model().num_heads;
    pages_.resize(static_cast<size_t>((config.max_model_len + config.block_size - 1) / config.block_size));
    std::iota(pages_.begin(), pages_.end(), 0);
    executor.observe_cells([this](int32_t layer, std::span<const kv::MeteredRow> rows,
                                  std::span<const kv::CellVerdict> cells) { collect(layer, rows, cells); });
  }

  absl::Status run_piece(const int32_t* tokens, int32_t length) {
    for (int32_t first = 0; first < length; first += options_.stride) {
      StepPlan plan;
      plan.slices.push_back(slice_of(tokens, length, first));
      plan.num_tokens = plan.slices[0].num_tokens;
      if (first == 0 && sequence_ > 0) {
        plan.ended_sequences.push_back(sequence_ - 1);
        plan.freed_pages = pages_;
      }
      const absl::StatusOr<StepResult> result = executor_.execute(plan);
      if (!result.ok()) return result.status();
      if (!result->slices[0].status.ok()) return result->slices[0].status;
    }
    ++sequence_;
    return absl::OkStatus();
  }

  MeterScores finish() {
    executor_.observe_cells({});
    std::sort(scores_.raw.begin(), scores_.raw.end());
    std::sort(scores_.value.begin(), scores_.value.end());
    return std::move(scores_);
  }

 private:
  SequenceSlice slice_of(const int32_t* tokens, int32_t length, int32_t first) const {
    SequenceSlice slice;
    slice.sequence_id = sequence_;
    slice.tokens = tokens;
    slice.num_known_tokens = slice.num_prompt_tokens = length;
    slice.first_position = first;
    slice.num_tokens = std::min(options_.stride, length - first);
    slice.pages = pages_.data();
    slice.num_pages = static_cast<int32_t>(pages_.size());
    slice.meter.tau = static_cast<float>(config_.kv_tau);
    slice.meter.tau_v = static_cast<float>(config_.kv_tau_v);
    slice.meter.metered_stride = options_.stride;
    const double shares = double(scores_.num_layers) * scores_.num_heads * std::max(options_.answer_tokens, 1);
    slice.meter.kappa = kv::dither_kappa(std::max(first, 1), config_.kv_delta / shares);
    return slice;
  }

  // Besides the positions divisible by the stride, the last of each chunk is metered; it reads exact rows of its chunk.
  void collect(int32_t layer, std::span<const kv::MeteredRow> rows, std::span<const kv::CellVerdict> cells) {
    const size_t heads = cells.size() / std::max<size_t>(rows.size(), 1);
    for (size_t i = 0; i < cells.size(); ++i) {
      if (rows[i / heads].position % options_.stride != 0) continue;
      const float raw = cells[i].meter.raw;
      scores_.raw.push_back(std::isnan(raw) ? std::numeric_limits<double>::infinity() : raw);
      scores_.value.push_back(std::isnan(cells[i].value) ? std::numeric_limits<double>::infinity() : cells[i].value);
      scores_.positions += layer == 0 && i % heads == 0;
    }
  }

  Executor& executor_;
  const EngineConfig& config_;
  const ScoreOptions& options_;
  std::vector<int32_t> pages_;
  int64_t sequence_ = 0;
  MeterScores scores_;
};

}  // namespace

absl::StatusOr<CalibrationSummary> calibrate_model(const EngineConfig& config) {
  const auto start = std::chrono::steady_clock::now();
  EngineConfig wanted = config;
  wanted.kv_pool = "certified";
  wanted.kv_balance = true;
  wanted.max_num_seqs = 1;
  wanted.calibration_files = EngineConfig::CalibrationFiles::kReplace;
  if (wanted.calibration_tokens.size() < 2) return absl::InvalidArgumentError("the text has fewer than two tokens");
  const absl::StatusOr<std::unique_ptr<Executor>> executor = make_executor(wanted);
  if (!executor.ok()) return executor.status();
  const absl::StatusOr<ModelConfig> model = load_model_config(wanted.model_dir);
  if (!model.ok()) return model.status();
  CalibrationSummary summary;
  summary.file = calibration_path(wanted.model_dir, CalibrationOrigin::kOperator);
  const auto key = calibration_key(wanted, wanted.calibration_tokens, CalibrationOrigin::kOperator);
  if (!key.ok()) return key.status();
  const absl::StatusOr<ChannelMoments> moments = read_calibration(summary.file, *key, *model);
  if (!moments.ok()) return moments.status();
  summary.num_tokens = static_cast<int64_t>(wanted.calibration_tokens.size());
  summary.num_layers = model->num_layers;
  summary.num_kv_heads = model->num_kv_heads;
  summary.head_dim = model->head_dim;
  for (int32_t pairs : kEnergyPairs) {
    if (pairs > model->head_dim / 2) continue;
    const std::vector<double> shares = energy_shares(*moments, model->head_dim, pairs);
    summary.energy.push_back({pairs, shares[shares.size() / 2], shares.back()});
  }
  summary.seconds = seconds_since(start);
  return summary;
}

absl::StatusOr<MeterScores> score_meter(const EngineConfig& config, const std::vector<int32_t>& tokens,
                                        const ScoreOptions& options) {
  if (options.stride < 1 || options.context <= options.stride) {
    return absl::InvalidArgumentError("the stride must be at least 1 and less than the context");
  }
  if (static_cast<int64_t>(tokens.size()) <= options.stride) {
    return absl::InvalidArgumentError("the text has " + std::to_string(tokens.size()) +
                                      " tokens; to meter it takes more than " + std::to_string(options.stride));
  }
  EngineConfig wanted = config;
  wanted.max_num_seqs = 1;
  wanted.max_num_batched_tokens = options.stride;
  wanted.max_model_len = static_cast<int32_t>(options.context);
  const absl::StatusOr<std::unique_ptr<Executor>> executor = make_executor(wanted);
  if (!executor.ok()) return executor.status();
  const int64_t total = static_cast<int64_t>(tokens.size());
  ScoringRun run(**executor, wanted, options);
  for (int64_t at = 0; at < total; at += options.context) {
    const int32_t length = static_cast<int32_t>(std::min(options.context, total - at));
    if (absl::Status status = run.run_piece(tokens.data() + at, length); !status.ok()) return status;
    if (options.progress) options.progress(at + length, total);
  }
  return run.finish();
}

}  // namespace assay
