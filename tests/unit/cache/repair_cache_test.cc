#include "cache/repair_cache.h"

#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/kv/gate.h"

namespace assay {
namespace {

class RepairCacheTest : public testing::Test {
 protected:
  RepairCacheTest() {
    pool_.num_layers = 2;
    pool_.num_kv_heads = 2;
    pool_.num_pages = 3;
    slots_.assign(12, -1);
    slots_[pool_.exact_key(0, 0, 0)] = 1;  // not the repair cache's: a page that is still filling
    pool_.exact.slots = slots_.data();
  }
  RepairCache make(int32_t num_slots) { return RepairCache::make(device_, pool_, 4, num_slots).value(); }

  CpuDevice device_{1};
  PagedKvView pool_;
  std::vector<int32_t> slots_;
};

TEST_F(RepairCacheTest, TheLeastRecentlyUsefulPageGoes) {
  RepairCache cache = make(2);
  const int64_t a = pool_.exact_key(0, 1, 2), b = pool_.exact_key(1, 0, 2), c = pool_.exact_key(1, 1, 1);
  const int32_t slot_a = cache.begin_step().claim(a);
  EXPECT_EQ(slots_[a], slot_a);
  EXPECT_GE(slot_a, 4);
  cache.begin_step().claim(b);
  const kv::RepairView& third = cache.begin_step();
  third.touch(slot_a);
  EXPECT_EQ(third.claim(c), slots_[c]);
  EXPECT_EQ(slots_[b], -1) << "a was read since";
  EXPECT_EQ(slots_[a], slot_a);
  EXPECT_EQ(cache.evictions(), 1);
  EXPECT_EQ(third.claim(b), -1) << "both were useful in this step";
  EXPECT_EQ(cache.num_pages(), 2);
}

TEST_F(RepairCacheTest, ForgetsAPageInAllLayersAndHeads) {
  RepairCache cache = make(4);
  const kv::RepairView& view = cache.begin_step();
  for (int32_t page : {1, 2}) view.claim(pool_.exact_key(0, 1, page));
  view.claim(pool_.exact_key(1, 1, 1));
  cache.forget(1);
  cache.forget(0);
  EXPECT_EQ(cache.num_pages(), 1);
  EXPECT_EQ(slots_[pool_.exact_key(0, 1, 1)], -1);
  EXPECT_GE(slots_[pool_.exact_key(0, 1, 2)], 4);
  EXPECT_EQ(slots_[pool_.exact_key(0, 0, 0)], 1) << "a slot of others is left alone";
  EXPECT_EQ(cache.evictions(), 0);
  EXPECT_GE(view.claim(pool_.exact_key(1, 0, 0)), 4) << "free slots are given out again, in the same step too";
}

// A page's entry can be another's by the time its slot is taken: a page that fills under a whole-page scheme.
TEST_F(RepairCacheTest, TakingASlotLeavesAnEntryThatIsNotItsOwn) {
  RepairCache cache = make(1);
  const int64_t a = pool_.exact_key(0, 1, 2), b = pool_.exact_key(1, 0, 2);
  cache.begin_step().claim(a);
  slots_[a] = 2;  // now a slot of others
  EXPECT_EQ(cache.begin_step().claim(b), 4);
  EXPECT_EQ(slots_[a], 2);
  EXPECT_EQ(slots_[b], 4);
}

TEST_F(RepairCacheTest, OfNoSlotsKeepsNothing) {
  RepairCache cache = make(0);
  EXPECT_EQ(cache.begin_step().claim(pool_.exact_key(0, 1, 0)), -1);
  cache.forget(0);
  EXPECT_EQ(cache.num_pages(), 0);
  EXPECT_EQ(cache.evictions(), 0);
}

TEST(Gate, TakesThePageThatContributesMost) {
  std::vector<kv::GatePage> pages = {{.mass = 0.9, .radius = 0.1f, .value_error = 0.01},
                                     {.mass = 0.05, .radius = 3.0f, .value_error = 0.001},
                                     {.mass = 0.05, .radius = 0.2f, .value_error = 0.5}};
  EXPECT_EQ(kv::next_page(pages.data(), 3, false), 1);
  EXPECT_EQ(kv::next_page(pages.data(), 3, true), 2);
  pages[1].exact = true;
  EXPECT_EQ(kv::next_page(pages.data(), 3, false), 0);
  pages[0].refused = pages[2].exact = true;
  EXPECT_EQ(kv::next_page(pages.data(), 3, false), -1);
  const kv::GatePage endless{.mass = 1, .radius = kv::infinity()};
  EXPECT_EQ(kv::next_page(&endless, 1, false), 0);
}

TEST(Gate, RoundsDoubleWithinTheBudget) {
  EXPECT_EQ(kv::page_budget(3), 4);
  EXPECT_EQ(kv::page_budget(256), 32);
  std::vector<int32_t> rounds;
  for (int32_t read = 0; kv::next_round(read, 32) > 0; read += rounds.back()) rounds.push_back(kv::next_round(read, 32));
  EXPECT_EQ(rounds, (std::vector<int32_t>{1, 1, 2, 4, 8, 16}));
}

}  // namespace
}  // namespace assay
