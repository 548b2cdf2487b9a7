#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cuda/row_reduce.cuh"
#include "kernels/cuda/sampling.h"

namespace assay {
namespace {

struct ScoreJob {
  int32_t row, token, num_top, first_top;
};

struct Score {
  int32_t finite, rank;
  float logprob;
};

struct TopEntry {
  int32_t id;
  float logprob;
};

// A job a block. The most probable are found one after the other, each the best that is worse than the last.
__global__ void __launch_bounds__(kRowBlock) logprobs_kernel(const float* logits, int64_t stride, int count,
                                                             const ScoreJob* jobs, Score* scores, TopEntry* top) {
  __shared__ uint64_t ranks[kRowWarps];
  __shared__ double sums[kRowWarps];
  const ScoreJob job = jobs[blockIdx.x];
  const float* row = logits + job.row * stride;
  Score score{};
  uint64_t best = 0;
  if (!best_of_row(row, count, ranks, &best)) {
    if (threadIdx.x == 0) scores[blockIdx.x] = score;
    return;
  }
  const float largest = row[id_of(best)];
  const uint64_t own = ranked(row[job.token], job.token);
  double sum = 0.0;
  uint64_t better = 0;
  for (int i = threadIdx.x; i < count; i += kRowBlock) {
    sum += static_cast<double>(expf(row[i] - largest));
    better += ranked(row[i], i) > own;
  }
  sum = block_reduce(sum, sums, SumOf());
  better = block_reduce(better, ranks, SumOf());
  const double norm = static_cast<double>(largest) + log(sum);
  const auto logprob = [&](float logit) { return static_cast<float>(static_cast<double>(logit) - norm); };
  uint64_t last = ~uint64_t{0};
  for (int n = 0; n < min(job.num_top, count); ++n) {
    uint64_t next = 0;
    for (int i = threadIdx.x; i < count; i += kRowBlock) {
      const uint64_t rank = ranked(row[i], i);
      if (rank < last) next = max(next, rank);
    }
    last = block_reduce(next, ranks, LargerOf());
    if (threadIdx.x == 0) top[job.first_top + n] = {id_of(last), logprob(row[id_of(last)])};
  }
  if (threadIdx.x != 0) return;
  score.finite = 1;
  score.rank = static_cast<int32_t>(1 + better);
  score.logprob = logprob(row[job.token]);
  scores[blockIdx.x] = score;
}

}  // namespace

void cuda_logprobs(CudaContext& context, RowScratch& scratch, ConstTensor logits, std::span<LogprobsRow> rows) {
  std::vector<ScoreJob> jobs;
  int32_t num_top = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].num_top < 0) continue;
    const int32_t listed = static_cast<int32_t>(std::min<int64_t>(rows[i].num_top, logits.cols));
    jobs.push_back({static_cast<int32_t>(i), rows[i].token, listed, num_top});
    num_top += listed;
  }
  if (jobs.empty()) return;
  const size_t job_bytes = jobs.size() * sizeof(ScoreJob), score_bytes = jobs.size() * sizeof(Score);
  const size_t answer_bytes = score_bytes + static_cast<size_t>(num_top) * sizeof(TopEntry);
  if (!scratch.reserve(context, job_bytes + answer_bytes)) return;
  std::memcpy(scratch.host(), jobs.data(), job_bytes);
  scratch.upload(context, job_bytes);
  logprobs_kernel<<<static_cast<unsigned>(jobs.size()), kRowBlock, 0, context.stream>>>(
      logits.f32(), logits.row_stride, static_cast<int>(logits.cols),
      reinterpret_cast<const ScoreJob*>(scratch.device()), reinterpret_cast<Score*>(scratch.device() + job_bytes),
      reinterpret_cast<TopEntry*>(scratch.device() + job_bytes + score_bytes));
  context.check(cudaPeekAtLastError());
  scratch.download(context, job_bytes, answer_bytes);
  const Score* scores = reinterpret_cast<const Score*>(scratch.host() + job_bytes);
  const TopEntry* top = reinterpret_cast<const TopEntry*>(scratch.host() + job_bytes + score_bytes);
  for (size_t j = 0; j < jobs.size(); ++j) {
    LogprobsRow& row = rows[static_cast<size_t>(jobs[j].row)];
    row.top.clear();
    row.finite = scores[j].finite != 0;
    if (!row.finite) continue;
    row.logprob = scores[j].logprob;
    row.rank = scores[j].rank;
    for (int32_t n = 0; n < jobs[j].num_top; ++n) {
      row.top.emplace_back(top[jobs[j].first_top + n].id, top[jobs[j].first_top + n].logprob);
    }
  }
}

}  // namespace assay
