#include "engine/execute/head_jobs.h"

namespace assay {

std::vector<int32_t> HeadJobs::rows() const {
  std::vector<int32_t> rows;
  rows.reserve(sample.size() + score.size());
  for (const HeadJob& job : sample) rows.push_back(job.row);
  for (const HeadJob& job : score) rows.push_back(job.row);
  return rows;
}

HeadJobs make_head_jobs(const StepPlan& plan) {
  HeadJobs jobs;
  int32_t first_row = 0;
  for (size_t s = 0; s < plan.slices.size(); ++s) {
    const SequenceSlice& slice = plan.slices[s];
    const int32_t index = static_cast<int32_t>(s);
    for (int32_t i = 0; slice.prompt_logprobs && i < slice.num_tokens; ++i) {
      const int32_t position = slice.first_position + i;
      if (position + 1 < slice.num_prompt_tokens) jobs.score.push_back({index, first_row + i, position});
    }
    first_row += slice.num_tokens;
    if (slice.sample) jobs.sample.push_back({index, first_row - 1, slice.num_known_tokens - 1});
  }
  return jobs;
}

SamplingRow make_sampling_row(const SequenceSlice& slice, const std::vector<int32_t>& eos_token_ids, int32_t vocab_size,
                              std::vector<int32_t>& forbidden) {
  const SamplingParams& params = *slice.sampling;
  forbidden.clear();
  const auto forbid = [&](const std::vector<int32_t>& ids) {
    for (int32_t id : ids) {
      if (id >= 0 && id < vocab_size) forbidden.push_back(id);
    }
  };
  if (slice.forbid_stop) {
    forbid(params.stop_token_ids);
    if (!params.ignore_eos) forbid(eos_token_ids);
  }
  SamplingRow row;
  row.temperature = params.temperature;
  row.top_p = params.top_p;
  row.top_k = params.top_k;
  row.min_p = params.min_p;
  row.repetition_penalty = params.repetition_penalty;
  row.presence_penalty = params.presence_penalty;
  row.frequency_penalty = params.frequency_penalty;
  row.logit_bias = params.logit_bias;
  const size_t prompt = static_cast<size_t>(slice.num_prompt_tokens),
               known = static_cast<size_t>(slice.num_known_tokens);
  row.prompt = {slice.tokens, prompt};
  row.output = {slice.tokens + prompt, known - prompt};
  row.forbidden = forbidden;
  row.seed = slice.seed;
  row.draw = known;
  return row;
}

}  // namespace assay
