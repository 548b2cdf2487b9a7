#include "cache/pool/pool_layout.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace assay {
namespace {

TEST(PoolLayout, ExactBytesAreTheSumOfTheirRows) {
  const KvShape shape{8, 2, 128, 32, DType::kBF16};
  const auto layout = make_pool_layout("exact", shape);
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->bytes_per_token_head(), 2 * 128 * 2);
  EXPECT_EQ(layout->bytes_per_page(), int64_t{8} * 2 * 32 * 2 * 128 * 2);
}

// Every record lies inside the pool and no two overlap.
TEST(PoolLayout, RecordsTileTheMemory) {
  const KvShape shape{3, 2, 6, 48, DType::kF16};
  const auto layout = make_pool_layout("exact", shape);
  ASSERT_TRUE(layout.ok());
  const int32_t pages = 5;
  std::byte* const base = reinterpret_cast<std::byte*>(uintptr_t{1} << 20);
  const PagedKvView view = layout->view(base, pages);
  std::set<int64_t> offsets;
  for (int32_t layer = 0; layer < 3; ++layer) {
    for (int32_t page = 0; page < pages; ++page) {
      for (int32_t head = 0; head < 2; ++head) {
        for (int32_t tile = 0; tile < 3; ++tile) offsets.insert(view.record(layer, page, head, tile) - base);
      }
    }
  }
  EXPECT_EQ(offsets.size(), size_t{3 * pages * 2 * 3});
  EXPECT_EQ(*offsets.begin(), 0);
  EXPECT_EQ(*offsets.rbegin() + layout->record_bytes, pages * layout->bytes_per_page());
  for (int64_t offset : offsets) EXPECT_EQ(offset % layout->record_bytes, 0);
  const int32_t table[] = {4, 2};
  EXPECT_EQ(view.record_of(1, table, 1, 48 + 17), view.record(1, 2, 1, 1));
}

TEST(PoolLayout, RefusesWithTheNames) {
  const KvShape good{1, 1, 64, 16, DType::kF32};
  EXPECT_THAT(std::string(make_pool_layout("exakt", good).status().message()), testing::HasSubstr("exact"));
  EXPECT_THAT(std::string(make_pool_layout("exact:8", good).status().message()), testing::HasSubstr("no scheme"));
  KvShape shape = good;
  shape.page_tokens = 24;
  EXPECT_THAT(std::string(make_pool_layout("exact", shape).status().message()), testing::HasSubstr("block_size"));
  shape = good;
  shape.head_dim = 63;
  EXPECT_THAT(std::string(make_pool_layout("exact", shape).status().message()), testing::HasSubstr("head_dim"));
  EXPECT_THAT(pool_names(), testing::Contains("exact"));
}

}  // namespace
}  // namespace assay
