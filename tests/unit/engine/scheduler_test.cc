#include "engine/schedule/scheduler.h"

#include <list>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace assay {

inline bool operator==(const SliceDecision& a, const SliceDecision& b) {
  return a.id == b.id && a.first_position == b.first_position && a.num_tokens == b.num_tokens;
}
inline void PrintTo(const SliceDecision& slice, std::ostream* out) {
  *out << "{id " << slice.id << ", from " << slice.first_position << ", " << slice.num_tokens << " tokens}";
}
inline bool operator==(const Admission& a, const Admission& b) {
  return a.id == b.id && a.num_cached_tokens == b.num_cached_tokens;
}

namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int32_t kBlock = 4;

class SchedulerTest : public testing::Test {
 protected:
  void make_cache(int32_t num_pages) {
    cache_.emplace(KvCacheOptions{.num_pages = num_pages,
                                  .enable_prefix_caching = true,
                                  .prefix = {.domain = "pool=exact", .block_size = kBlock, .hash_key = {1, 2}}});
  }

  // Tokens of sequence `id` differ from those of every other one unless `text` says otherwise.
  SequenceView view(SequenceId id, int32_t num_tokens, int32_t num_computed, int32_t text = -1) {
    texts_.push_back(std::vector<int32_t>(num_tokens, text < 0 ? static_cast<int32_t>(id) : text));
    return {.id = id,
            .tokens = texts_.back().data(),
            .num_tokens = num_tokens,
            .num_computed = num_computed,
            .cache_salt = &salt_,
            .use_prefix_cache = true};
  }

  void add_running(SequenceId id, int32_t num_tokens, int32_t num_computed, int32_t num_held_tokens = -1) {
    KvPlan plan = cache_->plan();
    ASSERT_TRUE(plan.admit(id, {}, "", num_held_tokens < 0 ? num_tokens : num_held_tokens, 0));
    cache_->commit(std::move(plan));
    state_.running.push_back(view(id, num_tokens, num_computed));
  }

  void add_waiting(SequenceId id, int32_t num_tokens, int32_t text = -1) {
    state_.waiting.push_back(view(id, num_tokens, 0, text));
  }

  ScheduleDecision decide(int32_t max_num_seqs = 8, int32_t max_num_batched_tokens = 16) {
    return schedule(state_, {max_num_seqs, max_num_batched_tokens}, *cache_);
  }

  std::string salt_;
  std::optional<KvCacheManager> cache_;
  std::list<std::vector<int32_t>> texts_;
  ScheduleState state_;
};

TEST_F(SchedulerTest, NothingToDoIsAnEmptyDecision) {
  make_cache(4);
  const ScheduleDecision decision = decide();
  EXPECT_THAT(decision.slices, IsEmpty());
  EXPECT_FALSE(decision.stalled);
}

TEST_F(SchedulerTest, DecodesComeBeforeChunksOfPrompts) {
  make_cache(32);
  add_running(1, 40, 8);
  add_running(2, 10, 9);
  add_running(3, 6, 5);
  const ScheduleDecision decision = decide(8, 16);
  EXPECT_THAT(decision.slices, ElementsAre(SliceDecision{2, 9, 1}, SliceDecision{3, 5, 1}, SliceDecision{1, 8, 14}));
  EXPECT_EQ(decision.num_tokens, 16);
}

TEST_F(SchedulerTest, TheBudgetLeftGoesToPromptsInOrderThenToAdmissions) {
  make_cache(32);
  add_running(1, 12, 2);
  add_waiting(2, 20);
  add_waiting(3, 4);
  const ScheduleDecision decision = decide(8, 16);
  EXPECT_THAT(decision.slices, ElementsAre(SliceDecision{1, 2, 10}, SliceDecision{2, 0, 6}));
  EXPECT_THAT(decision.admitted, ElementsAre(Admission{2, 0}));
}

TEST_F(SchedulerTest, AdmitsUpToMaxNumSeqs) {
  make_cache(32);
  for (SequenceId id = 1; id <= 5; ++id) add_waiting(id, 2);
  EXPECT_THAT(decide(3, 16).admitted, SizeIs(3));
}

// With more running sequences than tokens in a step, a running prompt could wait for ever behind decodes.
TEST_F(SchedulerTest, RunsNoMoreSequencesThanAStepHasTokens) {
  make_cache(32);
  for (SequenceId id = 1; id <= 5; ++id) add_waiting(id, 1);
  EXPECT_THAT(decide(5, 2).admitted, SizeIs(2));
}

TEST_F(SchedulerTest, NoOneOvertakesASequenceThatWaitsForPages) {
  make_cache(8);
  add_running(1, 18, 17);
  add_waiting(2, 20);
  add_waiting(3, 1);
  const ScheduleDecision decision = decide();
  EXPECT_THAT(decision.admitted, IsEmpty());
  EXPECT_FALSE(decision.stalled);
}

TEST_F(SchedulerTest, AdmissionLeavesAPageForEachRunningSequence) {
  make_cache(8);
  add_running(1, 16, 15);
  add_waiting(2, 16);
  EXPECT_THAT(decide().admitted, IsEmpty()) << "it fits, but sequence 1 will need a page soon";
  state_.waiting.clear();
  add_waiting(3, 12);
  EXPECT_THAT(decide().admitted, ElementsAre(Admission{3, 0}));
}

TEST_F(SchedulerTest, AHitShortensThePrompt) {
  make_cache(16);
  add_running(1, 9, 8);
  cache_->mark_computed(1, state_.running[0].tokens, 8);
  add_waiting(2, 12, 1);
  const ScheduleDecision decision = decide();
  EXPECT_THAT(decision.slices, ElementsAre(SliceDecision{1, 8, 1}, SliceDecision{2, 8, 4}));
  EXPECT_THAT(decision.admitted, ElementsAre(Admission{2, 8}));
}

TEST_F(SchedulerTest, ASequenceThatNeedsEveryPositionTakesNoHit) {
  make_cache(16);
  add_running(1, 9, 8);
  cache_->mark_computed(1, state_.running[0].tokens, 8);
  add_waiting(2, 12, 1);
  state_.waiting[0].use_prefix_cache = false;
  EXPECT_THAT(decide().slices, ElementsAre(SliceDecision{1, 8, 1}, SliceDecision{2, 0, 12}));
}

TEST_F(SchedulerTest, ADecodeWithoutAPagePreemptsTheWorstRanked) {
  make_cache(4);
  add_running(1, 5, 4, 4);
  add_running(2, 4, 3);
  add_running(3, 8, 7);
  const ScheduleDecision decision = decide();
  EXPECT_THAT(decision.preempted, ElementsAre(3));
  EXPECT_THAT(decision.slices, ElementsAre(SliceDecision{1, 4, 1}, SliceDecision{2, 3, 1}));
}

TEST_F(SchedulerTest, TheWorstRankedWithoutAPageGivesWayItself) {
  make_cache(4);
  add_running(1, 8, 7);
  add_running(2, 9, 8, 8);
  const ScheduleDecision decision = decide();
  EXPECT_THAT(decision.preempted, ElementsAre(2));
  EXPECT_THAT(decision.slices, ElementsAre(SliceDecision{1, 7, 1}));
}

TEST_F(SchedulerTest, AHalfComputedPromptCanBeAVictimAsWell) {
  make_cache(4);
  add_running(1, 9, 8, 8);
  add_running(2, 8, 4);
  const ScheduleDecision decision = decide();
  EXPECT_THAT(decision.preempted, ElementsAre(2));
  EXPECT_THAT(decision.slices, ElementsAre(SliceDecision{1, 8, 1}));
}

TEST_F(SchedulerTest, APassThatPreemptsAdmitsNoOne) {
  make_cache(6);
  add_running(1, 5, 4, 4);
  add_running(2, 20, 19);
  add_waiting(3, 1);
  const ScheduleDecision decision = decide();
  EXPECT_THAT(decision.preempted, ElementsAre(2));
  EXPECT_THAT(decision.admitted, IsEmpty());
}

TEST_F(SchedulerTest, ReportsASequenceThatCanNeverRun) {
  make_cache(2);
  add_waiting(1, 9);
  add_waiting(2, 1);
  EXPECT_EQ(decide().stalled, 1);
}

TEST_F(SchedulerTest, DecidesTheSameTwiceAndChangesNothing) {
  make_cache(8);
  add_running(1, 5, 4, 4);
  add_waiting(2, 7);
  const ScheduleDecision first = decide();
  const ScheduleDecision second = decide();
  EXPECT_EQ(first.slices, second.slices);
  EXPECT_EQ(first.admitted, second.admitted);
  EXPECT_EQ(cache_->usage().in_use, 1);
}

}  // namespace
}  // namespace assay
