#include "cache/backing_store.h"

#include <random>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"

namespace assay {
namespace {

constexpr KvShape kShape{.num_layers = 2, .num_kv_heads = 3, .head_dim = 16, .page_tokens = 16, .row_dtype = DType::kBF16};
constexpr int32_t kPages = 4;

class BackingStoreTest : public testing::Test {
 protected:
  BackingStore make(int64_t pages) {
    return BackingStore::make(device_, kShape, kPages, pages * BackingStore::bytes_per_page(kShape)).value();
  }

  // Writes a row pair of random bytes as the cache's writer does.
  void write(const kv::BackingView& view, int32_t layer, int32_t page, int32_t head, int32_t token) {
    const int64_t block = view.block(layer, page, head);
    for (std::byte* row : {view.k_row(block, token), view.v_row(block, token)}) {
      for (int32_t i = 0; i < view.row_bytes; ++i) row[i] = static_cast<std::byte>(random_());
    }
    view.checksum(block, token) = kv::row_checksum(view, block, token);
  }

  CpuDevice device_{1};
  std::mt19937 random_{1};
};

TEST_F(BackingStoreTest, TakesWhatThePagesTake) {
  // 512 bytes a token and KV head at head_dim 128 in 16 bits, and the 8 of the checksum.
  EXPECT_EQ(BackingStore::bytes_per_page({32, 8, 128, 16, DType::kBF16}), int64_t{32} * 8 * 16 * (512 + 8));
  const BackingStore store = make(2 * kPages + 5);
  EXPECT_EQ(store.limit_bytes(), 2 * kPages * BackingStore::bytes_per_page(kShape)) << "the pages, and as much again";
  EXPECT_EQ(store.used_bytes(), 0);
  EXPECT_FALSE(BackingStore::make(device_, kShape, kPages, 100).ok());
  EXPECT_FALSE(BackingStore().covers(0));
}

TEST_F(BackingStoreTest, EveryRowIsFoundWhereItWasWritten) {
  BackingStore store = make(kPages);
  for (PageId page = 0; page < kPages; ++page) store.begin(page);
  const kv::BackingView& view = store.view();
  for (int32_t i = 0; i < 2 * kPages * 3 * 16; ++i) write(view, i / 192, i / 48 % 4, i / 16 % 3, i % 16);
  for (int32_t i = 0; i < 2 * kPages * 3 * 16; ++i) {
    EXPECT_TRUE(kv::row_is_intact(view, view.block(i / 192, i / 48 % 4, i / 16 % 3), i % 16)) << i;
  }
}

TEST_F(BackingStoreTest, AFlippedBitAnywhereIsFound) {
  BackingStore store = make(kPages);
  store.begin(2);
  const kv::BackingView& view = store.view();
  write(view, 1, 2, 0, 5);
  const int64_t block = view.block(1, 2, 0);
  ASSERT_TRUE(kv::row_is_intact(view, block, 5));
  for (std::byte* row : {view.k_row(block, 5), view.v_row(block, 5)}) {
    for (int32_t bit = 0; bit < 8 * view.row_bytes; ++bit) {
      row[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
      EXPECT_FALSE(kv::row_is_intact(view, block, 5)) << bit;
      row[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    }
  }
  for (int bit = 0; bit < 64; ++bit) {
    view.checksum(block, 5) ^= uint64_t{1} << bit;
    EXPECT_FALSE(kv::row_is_intact(view, block, 5)) << bit;
    view.checksum(block, 5) ^= uint64_t{1} << bit;
  }
  EXPECT_TRUE(kv::row_is_intact(view, block, 5));
}

TEST_F(BackingStoreTest, ARowOfAnotherPlaceOrAnEarlierPageIsNotTaken) {
  BackingStore store = make(kPages);
  store.begin(0);
  const kv::BackingView& view = store.view();
  EXPECT_FALSE(kv::row_is_intact(view, view.block(0, 0, 0), 0)) << "never written";
  write(view, 0, 0, 0, 0);
  const int64_t from = view.block(0, 0, 0), to = view.block(1, 0, 2);
  std::copy_n(view.k_row(from, 0), view.row_bytes, view.k_row(to, 3));
  std::copy_n(view.v_row(from, 0), view.row_bytes, view.v_row(to, 3));
  view.checksum(to, 3) = view.checksum(from, 0);
  EXPECT_FALSE(kv::row_is_intact(view, to, 3));
  store.begin(0);
  EXPECT_FALSE(kv::row_is_intact(view, view.block(0, 0, 0), 0)) << "the page began anew";
}

TEST_F(BackingStoreTest, PagesWithoutASlotAreSkippedAndCounted) {
  BackingStore store = make(2);
  for (PageId page : {3, 1, 0}) store.begin(page);
  EXPECT_TRUE(store.covers(3) && store.covers(1));
  EXPECT_FALSE(store.covers(0) || store.covers(2));
  EXPECT_EQ(store.skipped_pages(), 1);
  EXPECT_EQ(store.used_bytes(), store.limit_bytes());
  store.release(3);
  store.release(3);
  store.release(2);
  EXPECT_EQ(store.used_bytes(), store.limit_bytes() / 2);
  store.begin(2);
  EXPECT_TRUE(store.covers(2));
  EXPECT_FALSE(store.covers(0)) << "skipped for its whole life";
  store.begin(2);  // it has a slot: starts again in it
  EXPECT_EQ(store.skipped_pages(), 1);
}

class ParkedTest : public BackingStoreTest {
 protected:
  // Pages 0, 1, 2 hold a sequence of 40 tokens; all rows of all pages are written.
  void fill(BackingStore& store) {
    for (const PageId page : {0, 1, 2}) {
      store.begin(page);
      for (int32_t i = 0; i < 2 * 3 * 16; ++i) write(store.view(), i / 48, page, i / 16 % 3, i % 16);
    }
  }
  const std::vector<PageId> pages_ = {0, 1, 2};
};

TEST_F(ParkedTest, WholePagesThatWereFreedComeBackWithTheirRows) {
  BackingStore store = make(kPages);
  fill(store);
  const std::vector<std::byte> before(store.view().k_row(store.view().block(1, 1, 2), 0),
                                      store.view().k_row(store.view().block(1, 1, 2), 0) + store.view().block_bytes());
  store.park(7, pages_, 40);
  for (const PageId page : {1, 0}) store.release(page);
  EXPECT_FALSE(store.covers(0) || store.covers(1)) << "the pages are others' now";
  EXPECT_TRUE(store.covers(2)) << "not whole: left to be released with its page";
  EXPECT_EQ(store.kept(7).first, 0);
  EXPECT_EQ(store.kept(7).end, 32);
  EXPECT_EQ(store.kept(8).end, 0);
  store.restore(7, 1, std::vector<PageId>{3});
  EXPECT_TRUE(store.covers(3));
  EXPECT_TRUE(kv::row_is_intact(store.view(), store.view().block(1, 3, 2), 15));
  EXPECT_TRUE(std::equal(before.begin(), before.end(), store.view().k_row(store.view().block(1, 3, 2), 0)));
  EXPECT_FALSE(store.is_parked(7));
  store.release(2);
  store.release(3);
  EXPECT_EQ(store.used_bytes(), 0) << "the slot of page 0 was not needed";
}

TEST_F(ParkedTest, SharedPagesAndBrokenRowsEndWhatIsKept) {
  BackingStore store = make(kPages);
  fill(store);
  store.park(7, pages_, 48);
  store.park(8, pages_, 48);
  store.release(2);
  store.release(1);  // page 0 is still in the prefix cache
  EXPECT_EQ(store.kept(7).first, 16);
  EXPECT_EQ(store.kept(7).end, 48);
  EXPECT_EQ(store.kept(8).first, 48) << "a slot is kept for one sequence";
  store.begin(1);  // another's content now
  store.release(1);
  EXPECT_EQ(store.kept(7).first, 16);
  store.drop(8);
  store.drop(7);
  EXPECT_EQ(store.kept(7).end, 0);
  fill(store);
  store.view().v_row(store.view().block(0, 2, 1), 9)[0] ^= std::byte{1};
  store.park(7, pages_, 48);
  for (const PageId page : pages_) store.release(page);
  EXPECT_EQ(store.kept(7).first, store.kept(7).end) << "rows are read through their checksums";
}

TEST_F(ParkedTest, KeptRowsMakeRoomForPagesThatBegin) {
  BackingStore store = make(3);
  fill(store);
  store.park(7, pages_, 48);
  for (const PageId page : pages_) store.release(page);
  EXPECT_EQ(store.used_bytes(), store.limit_bytes());
  store.begin(3);
  EXPECT_TRUE(store.covers(3));
  EXPECT_EQ(store.skipped_pages(), 0);
  EXPECT_FALSE(store.is_parked(7));
}

}  // namespace
}  // namespace assay
