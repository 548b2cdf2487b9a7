#include "cache/kv_cache_manager.h"

#include <numeric>

#include "gtest/gtest.h"

namespace assay {
namespace {

constexpr int32_t kBlock = 4;

std::vector<int32_t> numbers(int32_t count) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 100);
  return tokens;
}

class KvCacheManagerTest : public testing::Test {
 protected:
  explicit KvCacheManagerTest(bool enable_prefix_caching = true, int32_t num_pages = 8)
      : cache_({.num_pages = num_pages,
                .enable_prefix_caching = enable_prefix_caching,
                .prefix = {.domain = "pool=exact", .block_size = kBlock, .hash_key = {1, 2}}}) {}
  ~KvCacheManagerTest() override { EXPECT_EQ(cache_.find_violation(), ""); }

  bool admit(SequenceId id, const std::vector<int32_t>& tokens, const std::string& salt = "") {
    KvPlan plan = cache_.plan();
    const int32_t num_tokens = static_cast<int32_t>(tokens.size());
    if (!plan.admit(id, cache_.match(tokens.data(), num_tokens, salt), salt, num_tokens, 0)) return false;
    cache_.commit(std::move(plan));
    return true;
  }

  void compute(SequenceId id, const std::vector<int32_t>& tokens) {
    cache_.mark_computed(id, tokens.data(), static_cast<int32_t>(tokens.size()));
  }

  int32_t num_matched(const std::vector<int32_t>& tokens, const std::string& salt = "") {
    return cache_.match(tokens.data(), static_cast<int32_t>(tokens.size()), salt).num_tokens;
  }

  KvCacheManager cache_;
};

TEST_F(KvCacheManagerTest, APlanThatIsDroppedChangesNothing) {
  ASSERT_TRUE(admit(1, numbers(8)));
  const std::vector<PageId> before = cache_.pages(1);
  {
    KvPlan plan = cache_.plan();
    EXPECT_EQ(plan.num_available(), 6);
    EXPECT_TRUE(plan.grow(1, 9));
    EXPECT_TRUE(plan.admit(2, {}, "", 20, 0));
    EXPECT_EQ(plan.num_available(), 0);
    EXPECT_FALSE(plan.grow(1, 13));
    plan.release(1);
    EXPECT_EQ(plan.num_available(), 3) << "two pages held and one planned come back";
  }
  EXPECT_EQ(cache_.pages(1), before);
  EXPECT_FALSE(cache_.knows(2));
  EXPECT_EQ(cache_.usage().in_use, 2);
}

TEST_F(KvCacheManagerTest, APlanIsCommittedAsAWhole) {
  ASSERT_TRUE(admit(1, numbers(8)));
  KvPlan plan = cache_.plan();
  plan.release(1);
  EXPECT_TRUE(plan.admit(2, {}, "", 32, 0)) << "needs every page, those of 1 included";
  cache_.commit(std::move(plan));
  EXPECT_FALSE(cache_.knows(1));
  EXPECT_EQ(cache_.pages(2).size(), 8u);
}

TEST_F(KvCacheManagerTest, ACopiedPlanIsAnotherTry) {
  KvPlan plan = cache_.plan();
  KvPlan attempt = plan;
  EXPECT_TRUE(attempt.admit(1, {}, "", 32, 0));
  EXPECT_EQ(attempt.num_available(), 0);
  EXPECT_EQ(plan.num_available(), 8);
}

TEST_F(KvCacheManagerTest, AdmissionKeepsTheReserve) {
  KvPlan plan = cache_.plan();
  EXPECT_FALSE(plan.admit(1, {}, "", 24, 3));
  EXPECT_TRUE(plan.admit(1, {}, "", 24, 2));
}

TEST_F(KvCacheManagerTest, SharesOnlyFullComputedPages) {
  const std::vector<int32_t> tokens = numbers(10);
  ASSERT_TRUE(admit(1, tokens));
  EXPECT_EQ(num_matched(tokens), 0) << "nothing is computed yet";
  cache_.mark_computed(1, tokens.data(), 7);
  EXPECT_EQ(num_matched(tokens), 4);
  compute(1, tokens);
  EXPECT_EQ(num_matched(tokens), 8);
  ASSERT_TRUE(admit(2, tokens));
  EXPECT_EQ(cache_.pages(2)[0], cache_.pages(1)[0]);
  EXPECT_EQ(cache_.pages(2)[1], cache_.pages(1)[1]);
  EXPECT_NE(cache_.pages(2)[2], cache_.pages(1)[2]);
  EXPECT_EQ(cache_.usage().in_use, 4);
}

TEST_F(KvCacheManagerTest, AHitNeverCoversTheLastToken) {
  for (const int32_t length : {4, 5, 8, 9}) {
    const std::vector<int32_t> tokens = numbers(length);
    ASSERT_TRUE(admit(length, tokens));
    compute(length, tokens);
  }
  EXPECT_EQ(num_matched(numbers(1)), 0);
  EXPECT_EQ(num_matched(numbers(4)), 0);
  EXPECT_EQ(num_matched(numbers(5)), 4);
  EXPECT_EQ(num_matched(numbers(8)), 4);
  EXPECT_EQ(num_matched(numbers(9)), 8);
}

TEST_F(KvCacheManagerTest, CachedPagesAreAvailableAndEvictedOnlyWhenNeeded) {
  const std::vector<int32_t> tokens = numbers(12);
  ASSERT_TRUE(admit(1, tokens));
  compute(1, tokens);
  cache_.release(1);
  EXPECT_EQ(cache_.usage().in_use, 0);
  EXPECT_EQ(cache_.usage().cached, 3);
  EXPECT_EQ(cache_.plan().num_available(), 8);
  std::vector<int32_t> other(24, 7);
  ASSERT_TRUE(admit(2, other));
  EXPECT_EQ(cache_.usage().cached, 2) << "five free pages and one evicted";
  EXPECT_EQ(num_matched(numbers(13)), 8);
}

// The hit itself must survive the allocations of the same plan, and is not counted as available any more.
TEST_F(KvCacheManagerTest, AHitOnCachedPagesIsPinnedBeforeAnythingIsEvicted) {
  const std::vector<int32_t> tokens = numbers(16);
  ASSERT_TRUE(admit(1, tokens));
  compute(1, tokens);
  const std::vector<PageId> pages = cache_.pages(1);
  cache_.release(1);
  ASSERT_TRUE(admit(2, numbers(32)));
  EXPECT_EQ(std::vector<PageId>(cache_.pages(2).begin(), cache_.pages(2).begin() + 4), pages);
  EXPECT_FALSE(admit(3, numbers(33)));
}

TEST_F(KvCacheManagerTest, SharedPagesComeBackWithTheirLastOwner) {
  const std::vector<int32_t> tokens = numbers(9);
  ASSERT_TRUE(admit(1, tokens));
  compute(1, tokens);
  ASSERT_TRUE(admit(2, tokens));
  KvPlan plan = cache_.plan();
  const int32_t before = plan.num_available();
  plan.release(1);
  EXPECT_EQ(plan.num_available(), before + 1) << "two of its three pages are those of 2 as well";
  plan.release(2);
  EXPECT_EQ(plan.num_available(), 8);
}

TEST_F(KvCacheManagerTest, SaltsDoNotShare) {
  const std::vector<int32_t> tokens = numbers(9);
  ASSERT_TRUE(admit(1, tokens, "a"));
  compute(1, tokens);
  EXPECT_EQ(num_matched(tokens, "a"), 8);
  EXPECT_EQ(num_matched(tokens, "b"), 0);
  EXPECT_EQ(num_matched(tokens), 0);
}

using KvCacheManagerDeathTest = KvCacheManagerTest;
TEST_F(KvCacheManagerDeathTest, AStalePlanCannotBeCommitted) {
  KvPlan plan = cache_.plan();
  ASSERT_TRUE(admit(1, numbers(4)));
  EXPECT_DEATH(cache_.commit(std::move(plan)), "broken invariant");
}

class NoPrefixCachingTest : public KvCacheManagerTest {
 protected:
  NoPrefixCachingTest() : KvCacheManagerTest(false) {}
};

TEST_F(NoPrefixCachingTest, NothingIsSharedOrKept) {
  const std::vector<int32_t> tokens = numbers(12);
  ASSERT_TRUE(admit(1, tokens));
  compute(1, tokens);
  EXPECT_EQ(num_matched(tokens), 0);
  cache_.release(1);
  EXPECT_EQ(cache_.usage().cached, 0);
  EXPECT_EQ(cache_.usage().in_use, 0);
}

}  // namespace
}  // namespace assay
