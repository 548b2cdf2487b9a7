#include "cache/page_allocator.h"

#include <set>

#include "gtest/gtest.h"

namespace assay {
namespace {

TEST(PageAllocator, GivesEachPageOnceAndThenNone) {
  PageAllocator allocator(3);
  std::vector<PageHandle> held;
  std::set<PageId> ids;
  for (int i = 0; i < 3; ++i) {
    held.push_back(allocator.try_allocate());
    ASSERT_TRUE(held.back());
    ids.insert(held.back().id());
  }
  EXPECT_EQ(ids, (std::set<PageId>{0, 1, 2}));
  EXPECT_FALSE(allocator.try_allocate());
  held.pop_back();
  EXPECT_EQ(allocator.num_free(), 1);
  EXPECT_TRUE(allocator.try_allocate());
}

TEST(PageAllocator, APageIsFreeWhenItsLastHandleGoes) {
  PageAllocator allocator(1);
  PageHandle first = allocator.try_allocate();
  PageHandle copy = first;
  PageHandle shared = allocator.share(first.id());
  EXPECT_EQ(allocator.num_holders(0), 3);
  first = PageHandle();
  shared = PageHandle();
  EXPECT_EQ(allocator.num_holders(0), 1);
  EXPECT_EQ(allocator.num_free(), 0);
  copy = PageHandle();
  EXPECT_EQ(allocator.num_free(), 1);
}

TEST(PageAllocator, MovingAHandleMovesItsCount) {
  PageAllocator allocator(1);
  PageHandle first = allocator.try_allocate();
  PageHandle second = std::move(first);
  EXPECT_EQ(second.id(), 0);
  EXPECT_EQ(allocator.num_holders(0), 1);
  PageHandle& itself = second;
  second = itself;
  EXPECT_EQ(allocator.num_holders(0), 1);
}

TEST(PageAllocator, TellsWhichPagesWentSinceTheLastQuestion) {
  PageAllocator allocator(2);
  PageHandle first = allocator.try_allocate();
  PageHandle shared = first;
  const PageId page = first.id();
  first = PageHandle();
  EXPECT_TRUE(allocator.take_freed().empty());
  shared = PageHandle();
  first = allocator.try_allocate();
  ASSERT_EQ(first.id(), page) << "last in, first out";
  EXPECT_EQ(allocator.take_freed(), std::vector<PageId>{page}) << "it went, though it is held again";
  EXPECT_TRUE(allocator.take_freed().empty());
}

TEST(PageAllocatorDeathTest, SharingAFreePageIsABrokenInvariant) {
  PageAllocator allocator(1);
  EXPECT_DEATH(allocator.share(0), "broken invariant");
}

}  // namespace
}  // namespace assay
