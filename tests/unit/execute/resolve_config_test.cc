#include "engine/execute/resolve_config.h"

#include "engine/execute/machine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace assay {
namespace {

using testing::HasSubstr;

ModelConfig model() {
  ModelConfig m;
  m.num_layers = 2;
  m.num_heads = 4;
  m.num_kv_heads = 2;
  m.head_dim = 16;
  m.max_position_embeddings = 1000;
  return m;
}

const Machine kMachine{3, int64_t{1} << 30};
constexpr int64_t kPageBytes = 2 * 2 * 16 * 16 * 2 * 2;  // layers, heads, tokens, dim, K and V, bf16

std::string problem_of(EngineConfig config, bool given = false) {
  const absl::Status compute = resolve_compute(model(), kMachine, config);
  if (!compute.ok()) return std::string(compute.message());
  const auto cache = resolve_cache(model(), DType::kBF16, kMachine, given, config);
  return cache.ok() ? "no problem" : std::string(cache.status().message());
}

TEST(ResolveConfig, Defaults) {
  EngineConfig config;
  ASSERT_TRUE(resolve_compute(model(), kMachine, config).ok());
  EXPECT_EQ(config.device, "cpu");
  EXPECT_EQ(config.threads, 3);
  EXPECT_EQ(config.max_model_len, 1000);
  EXPECT_EQ(config.max_num_batched_tokens, 2048);
  const auto cache = resolve_cache(model(), DType::kBF16, kMachine, false, config);
  ASSERT_TRUE(cache.ok());
  EXPECT_EQ(config.kv_cache_dtype, "bfloat16");
  EXPECT_EQ(cache->layout.bytes_per_page(), kPageBytes);
  EXPECT_EQ(cache->num_pages, 63 * 256);  // max_num_seqs full contexts
  EXPECT_EQ(config.kv_cache_memory_bytes, 63 * 256 * kPageBytes);
}

TEST(ResolveConfig, CertifiedFallsBackToExactWhereHeadsDoNotFit) {
  ModelConfig odd = model();
  for (const auto& [head_dim, pool] : {std::pair{16, "certified"}, {20, "exact"}, {96, "exact"}, {1024, "exact"}}) {
    odd.head_dim = head_dim;
    EngineConfig config;
    config.kv_pool = "certified";
    ASSERT_TRUE(resolve_compute(odd, kMachine, config).ok());
    const auto cache = resolve_cache(odd, DType::kBF16, kMachine, false, config);
    ASSERT_TRUE(cache.ok()) << cache.status().message();
    EXPECT_EQ(cache->layout.name, pool) << head_dim;
    EXPECT_EQ(config.kv_pool, pool);
  }
  EngineConfig witcert;  // asked for by name: refused
  witcert.kv_pool = "witcert";
  ASSERT_TRUE(resolve_compute(odd, kMachine, witcert).ok());
  EXPECT_FALSE(resolve_cache(odd, DType::kBF16, kMachine, false, witcert).ok());
}

TEST(ResolveConfig, MemoryShareBoundsTheCache) {
  EngineConfig config;
  const Machine small{1, 100 * kPageBytes};
  ASSERT_TRUE(resolve_compute(model(), small, config).ok());
  const auto cache = resolve_cache(model(), DType::kBF16, small, false, config);
  ASSERT_TRUE(cache.ok());
  EXPECT_EQ(cache->num_pages, 40);
  EXPECT_EQ(config.max_model_len, 640);  // shrinks to what fits
}

TEST(ResolveConfig, ExplicitSettings) {
  EngineConfig config;
  config.kv_cache_dtype = "float32";
  config.block_size = 32;
  config.kv_cache_memory_bytes = 10 * 4 * kPageBytes + 5;
  config.max_model_len = 320;
  ASSERT_TRUE(resolve_compute(model(), kMachine, config).ok());
  const auto cache = resolve_cache(model(), DType::kBF16, kMachine, true, config);
  ASSERT_TRUE(cache.ok());
  EXPECT_EQ(cache->num_pages, 10);
}

TEST(ResolveConfig, TakesAGpuThatIsThere) {
  const Machine with_gpu{3, 100 * kPageBytes, /*why_no_cuda=*/""},
      without{3, 100 * kPageBytes, "no NVIDIA GPU is visible"};
  for (const char* device : {"auto", "cuda"}) {
    EngineConfig config;
    config.device = device;
    ASSERT_TRUE(resolve_compute(model(), with_gpu, config).ok());
    EXPECT_EQ(config.device, "cuda");
    EXPECT_EQ(config.max_num_batched_tokens, 8192);
    const auto cache = resolve_cache(model(), DType::kBF16, with_gpu, false, config);
    ASSERT_TRUE(cache.ok());
    EXPECT_EQ(cache->num_pages, 90);  // of a GPU's free memory the cache gets more than of a host's
  }
  EngineConfig config;
  config.device = "cpu";
  ASSERT_TRUE(resolve_compute(model(), with_gpu, config).ok());
  EXPECT_EQ(config.device, "cpu");
  config.device = "cuda";
  EXPECT_EQ(resolve_compute(model(), without, config).message(),
            "device cuda: no NVIDIA GPU is visible; use device cpu or auto");
}

TEST(ResolveConfig, NamesTheSetting) {
  const auto with = [](auto member, auto value) {
    EngineConfig config;
    config.*member = value;
    return config;
  };
  EXPECT_THAT(problem_of(with(&EngineConfig::device, "cuda")), HasSubstr("CPU"));
  EXPECT_THAT(problem_of(with(&EngineConfig::device, "tpu")), HasSubstr("device"));
  EXPECT_THAT(problem_of(with(&EngineConfig::max_model_len, 1001)), HasSubstr("max_model_len is 1001"));
  EXPECT_THAT(problem_of(with(&EngineConfig::max_model_len, -1)), HasSubstr("max_model_len"));
  EXPECT_THAT(problem_of(with(&EngineConfig::threads, -2)), HasSubstr("threads"));
  EXPECT_THAT(problem_of(with(&EngineConfig::max_num_seqs, 0)), HasSubstr("max_num_seqs"));
  EXPECT_THAT(problem_of(with(&EngineConfig::max_num_batched_tokens, -1)), HasSubstr("max_num_batched_tokens"));
  EXPECT_THAT(problem_of(with(&EngineConfig::block_size, 20)), HasSubstr("block_size"));
  EXPECT_THAT(problem_of(with(&EngineConfig::kv_cache_dtype, "fp8")), HasSubstr("kv_cache_dtype"));
  EXPECT_THAT(problem_of(with(&EngineConfig::kv_pool, "certain")), HasSubstr("exact"));
  EXPECT_THAT(problem_of(with(&EngineConfig::kv_cache_memory_bytes, 100)), HasSubstr("of 100 bytes holds no page of"));
  EXPECT_THAT(problem_of(with(&EngineConfig::kv_cache_memory_bytes, 10 * kPageBytes), true),
              HasSubstr("max_model_len"));
}

TEST(Machine, IsPlausible) {
  EXPECT_GE(usable_cpus(), 1);
  EXPECT_GT(available_memory_bytes(), int64_t{1} << 20);
}

}  // namespace
}  // namespace assay
