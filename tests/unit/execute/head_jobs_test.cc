#include "engine/execute/head_jobs.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace assay {
namespace {

TEST(HeadJobs, OnlyWhatIsAskedFor) {
  const std::vector<int32_t> tokens(20);
  SamplingParams params;
  SequenceSlice chunk;  // middle of a prompt: nothing
  chunk.tokens = tokens.data();
  chunk.num_known_tokens = chunk.num_prompt_tokens = 20;
  chunk.num_tokens = 5;
  chunk.sampling = &params;
  SequenceSlice scored = chunk;  // the end of a prompt, scored: 15..18 score, 19 samples
  scored.first_position = 15;
  scored.prompt_logprobs = scored.sample = true;
  SequenceSlice decode = chunk;
  decode.num_prompt_tokens = 12;
  decode.first_position = 19;
  decode.num_tokens = 1;
  decode.sample = decode.prompt_logprobs = true;  // beyond the prompt: no scores
  StepPlan plan;
  plan.slices = {chunk, scored, decode};
  const HeadJobs jobs = make_head_jobs(plan);
  EXPECT_THAT(jobs.rows(), testing::ElementsAre(9, 10, 5, 6, 7, 8));
  EXPECT_EQ(jobs.score[0].position, 15);
  EXPECT_EQ(jobs.sample[1].slice, 2);
}

TEST(SamplingRow, ForbidsStopsUntilMinTokens) {
  const std::vector<int32_t> tokens = {1, 2, 3};
  SamplingParams params;
  params.stop_token_ids = {7, 999, -1};
  SequenceSlice slice;
  slice.tokens = tokens.data();
  slice.num_known_tokens = 3;
  slice.num_prompt_tokens = 2;
  slice.sampling = &params;
  std::vector<int32_t> forbidden;
  EXPECT_TRUE(make_sampling_row(slice, {5}, 100, forbidden).forbidden.empty());
  slice.forbid_stop = true;
  make_sampling_row(slice, {5}, 100, forbidden);
  EXPECT_THAT(forbidden, testing::UnorderedElementsAre(7, 5));
  params.ignore_eos = true;
  const SamplingRow row = make_sampling_row(slice, {5}, 100, forbidden);
  EXPECT_THAT(forbidden, testing::UnorderedElementsAre(7));
  EXPECT_EQ(row.prompt.size(), 2u);
  EXPECT_EQ(row.output.size(), 1u);
  EXPECT_EQ(row.output[0], 3);
  EXPECT_EQ(row.draw, 3u);
}

}  // namespace
}  // namespace assay
