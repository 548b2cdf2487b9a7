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

TEST(PoolLayout, CompressedBytes) {
  const KvShape shape{3, 2, 128, 64, DType::kBF16};
  const auto bytes = [&](const char* pool, int32_t pairs) {
    const auto layout = make_pool_layout(pool, shape, {.outlier_pairs = pairs});
    EXPECT_TRUE(layout.ok()) << layout.status().message();
    return layout.ok() ? layout->bytes_per_page() : 0;
  };
  EXPECT_EQ(bytes("certified", 0), int64_t{3} * 2 * 64 * 264);
  EXPECT_EQ(bytes("witcert", 0), int64_t{3} * 2 * 64 * 272);
  EXPECT_EQ(bytes("witcert", 4), int64_t{3} * 2 * 64 * 288);
  EXPECT_EQ(bytes("observed:fp8-e4m3", 0), int64_t{3} * 2 * 64 * (256 + 34));
  EXPECT_EQ(bytes("observed:kvquant-4", 0), int64_t{3} * 2 * 2 * (128 * 20 + 6 * 41 + 32 * 68 + 32 * 34));
  for (const std::string& name : pool_names()) EXPECT_GT(bytes(name.c_str(), 0), 0) << name;
}

// A record of 32 tokens: both its tiles have one address.
TEST(PoolLayout, RecordsOfTwoTiles) {
  const auto layout = make_pool_layout("observed:kivi-2", {1, 1, 64, 64, DType::kF32});
  ASSERT_TRUE(layout.ok());
  EXPECT_TRUE(layout->encodes_whole_pages());
  const PagedKvView view = layout->view(nullptr, 2);
  EXPECT_EQ(view.record(0, 0, 0, 0), view.record(0, 0, 0, 1));
  EXPECT_EQ(view.record(0, 0, 0, 2) - view.record(0, 0, 0, 0), layout->record_bytes);
  EXPECT_EQ(view.record(0, 1, 0, 0) - view.record(0, 0, 0, 0), layout->bytes_per_page());
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
  EXPECT_THAT(pool_names(), testing::IsSupersetOf({"exact", "certified", "witcert", "observed:identity"}));
  shape = good;
  shape.head_dim = 48;
  EXPECT_THAT(std::string(make_pool_layout("witcert", shape).status().message()), testing::HasSubstr("power of two"));
  EXPECT_THAT(std::string(make_pool_layout("observed:kivi-2", good).status().message()),
              testing::HasSubstr("block_size"));
  EXPECT_THAT(std::string(make_pool_layout("observed:none", good).status().message()), testing::HasSubstr("rtn-int4"));
  EXPECT_THAT(std::string(make_pool_layout("witcert", good, {.outlier_pairs = 17}).status().message()),
              testing::HasSubstr("kv_outlier_pairs"));
}

}  // namespace
}  // namespace assay
