#include "cache/prefix_index.h"

#include "gtest/gtest.h"

namespace assay {
namespace {

constexpr int32_t kBlock = 4;

// Index and allocator, and what KvCacheManager does with them, by hand. The parameter is the number of hash bits.
class PrefixIndexTest : public testing::TestWithParam<int32_t> {
 protected:
  PrefixIndexTest()
      : allocator_(16),
        index_(&allocator_,
               {.domain = "pool=exact", .block_size = kBlock, .hash_key = {1, 2}, .hash_bits = GetParam()}) {}

  // Pages that hold `tokens` as if computed, indexed; the caller is their owner.
  std::vector<PageHandle> compute(const std::vector<int32_t>& tokens, const std::string& salt = "") {
    const int32_t num_pages = static_cast<int32_t>(tokens.size()) / kBlock;
    std::vector<PageHandle> pages;
    for (int32_t i = 0; i < num_pages; ++i) pages.push_back(allocator_.try_allocate());
    PrefixChain chain;
    index_.extend(chain, tokens.data(), num_pages, salt, pages);
    EXPECT_EQ(chain.length, num_pages);
    return pages;
  }

  void drop(std::vector<PageHandle>& pages) {
    while (!pages.empty()) {
      const PageId page = pages.back().id();
      pages.pop_back();
      index_.note_dropped(page);
    }
  }

  std::vector<PageId> match(const std::vector<int32_t>& tokens, const std::string& salt = "") {
    return index_.match(tokens.data(), static_cast<int32_t>(tokens.size()) / kBlock, salt);
  }

  static std::vector<PageId> ids(const std::vector<PageHandle>& pages) {
    std::vector<PageId> ids;
    for (const PageHandle& page : pages) ids.push_back(page.id());
    return ids;
  }

  PageAllocator allocator_;
  PrefixIndex index_;
};

TEST_P(PrefixIndexTest, FindsTheLongestChainOfEqualTokens) {
  const auto pages = compute({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  EXPECT_EQ(match({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}), ids(pages));
  EXPECT_EQ(match({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 99}), (std::vector<PageId>{pages[0].id(), pages[1].id()}));
  EXPECT_EQ(match({1, 2, 3, 4, 0, 6, 7, 8, 9, 10, 11, 12}), (std::vector<PageId>{pages[0].id()}));
  EXPECT_TRUE(match({2, 1, 3, 4}).empty());
  EXPECT_TRUE(match({5, 6, 7, 8}).empty()) << "a page matches after its own prefix only";
  EXPECT_TRUE(match({1, 2, 3}).empty());
}

TEST_P(PrefixIndexTest, SaltsDoNotShare) {
  const auto plain = compute({1, 2, 3, 4});
  const auto salted = compute({1, 2, 3, 4}, "tenant");
  EXPECT_EQ(match({1, 2, 3, 4}), ids(plain));
  EXPECT_EQ(match({1, 2, 3, 4}, "tenant"), ids(salted));
  EXPECT_TRUE(match({1, 2, 3, 4}, "tenan").empty());
}

TEST_P(PrefixIndexTest, EqualContentIsIndexedOnce) {
  auto first = compute({1, 2, 3, 4, 5, 6, 7, 8});
  auto second = compute({1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(index_.num_entries(), 2);
  EXPECT_EQ(match({1, 2, 3, 4, 5, 6, 7, 8}), ids(first));
  drop(second);
  EXPECT_EQ(allocator_.num_free(), 14);
}

TEST_P(PrefixIndexTest, EvictsIdlePagesFromTheEndOfTheOldestChain) {
  auto old_pages = compute({1, 2, 3, 4, 5, 6, 7, 8});
  auto new_pages = compute({9, 9, 9, 9});
  EXPECT_FALSE(index_.evict_one()) << "all pages are in use";
  drop(old_pages);
  drop(new_pages);
  EXPECT_EQ(index_.num_idle(), 3);
  ASSERT_TRUE(index_.evict_one());
  EXPECT_EQ(match({1, 2, 3, 4, 5, 6, 7, 8}).size(), 1u);
  ASSERT_TRUE(index_.evict_one());
  EXPECT_TRUE(match({1, 2, 3, 4}).empty());
  EXPECT_EQ(match({9, 9, 9, 9}).size(), 1u);
  ASSERT_TRUE(index_.evict_one());
  EXPECT_FALSE(index_.evict_one());
  EXPECT_EQ(allocator_.num_free(), 16);
}

TEST_P(PrefixIndexTest, UseMakesAChainYoung) {
  auto first = compute({1, 1, 1, 1});
  auto second = compute({2, 2, 2, 2});
  drop(first);
  drop(second);
  std::vector<PageHandle> user{allocator_.share(match({1, 1, 1, 1}).front())};
  index_.note_taken(user.front().id());
  EXPECT_EQ(index_.num_idle(), 1);
  drop(user);
  ASSERT_TRUE(index_.evict_one());
  EXPECT_EQ(match({1, 1, 1, 1}).size(), 1u);
  EXPECT_TRUE(match({2, 2, 2, 2}).empty());
}

// The second sequence keeps its own copy of page 0; its page 1 hangs under the first one's page 0.
TEST_P(PrefixIndexTest, DescendantsLeaveWithTheirAncestorAndCanComeBack) {
  auto first = compute({1, 2, 3, 4});
  const std::vector<int32_t> tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  std::vector<PageHandle> second;
  for (int i = 0; i < 3; ++i) second.push_back(allocator_.try_allocate());
  PrefixChain chain;
  index_.extend(chain, tokens.data(), 2, "", second);
  EXPECT_EQ(match(tokens), (std::vector<PageId>{first[0].id(), second[1].id()}));
  drop(first);
  ASSERT_TRUE(index_.evict_one());
  EXPECT_EQ(index_.num_entries(), 0);
  EXPECT_TRUE(match(tokens).empty());
  index_.extend(chain, tokens.data(), 3, "", second);
  EXPECT_EQ(match(tokens), ids(second)) << "indexed again from the start, now under its own page 0";
}

INSTANTIATE_TEST_SUITE_P(HashBits, PrefixIndexTest, testing::Values(64, 8, 0));

}  // namespace
}  // namespace assay
