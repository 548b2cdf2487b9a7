#include "engine/model/decoder_weights.h"

#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace assay {
namespace {

using testing::HasSubstr;

ModelConfig small() {
  ModelConfig c;
  c.vocab_size = 10;
  c.hidden_size = 8;
  c.intermediate_size = 12;
  c.num_layers = 2;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = 2;
  return c;
}

// Serves every tensor but those named, and records what was asked for.
class FakeSource final : public WeightSource {
 public:
  explicit FakeSource(std::string absent = "") : absent_(std::move(absent)) {}
  bool contains(const std::string& name) const override { return name != absent_; }
  absl::StatusOr<ConstTensor> get(const std::string& name, int64_t rows, int64_t cols) override {
    if (name == absent_) return absl::InvalidArgumentError("the weights have no tensor \"" + name + "\"");
    asked[name] = {rows, cols};
    return ConstTensor(data_, DType::kF32, rows, cols, cols);
  }
  std::vector<std::string> unused() const override { return left_over; }
  std::vector<std::string> left_over;
  std::map<std::string, std::pair<int64_t, int64_t>> asked;

 private:
  std::string absent_;
  float data_[128] = {};
};

std::string problem_of(const ModelConfig& config, const std::string& absent) {
  FakeSource source(absent);
  const auto weights = load_decoder_weights(config, source, {});
  return weights.ok() ? "no problem" : std::string(weights.status().message());
}

TEST(DecoderWeights, AsksForEveryTensorOnceWithItsShape) {
  ModelConfig config = small();
  config.qkv_bias = config.qk_norm = true;
  FakeSource source;
  const auto weights = load_decoder_weights(config, source, {});
  ASSERT_TRUE(weights.ok());
  EXPECT_EQ(source.asked.size(), 2u * (9 + 3 + 2) + 3);
  EXPECT_EQ(source.asked.at("model.layers.1.self_attn.k_proj.weight"), std::pair(int64_t{4}, int64_t{8}));
  EXPECT_EQ(source.asked.at("model.layers.0.self_attn.q_norm.weight"), std::pair(int64_t{1}, int64_t{2}));
  EXPECT_EQ(source.asked.at("model.layers.0.self_attn.v_proj.bias"), std::pair(int64_t{1}, int64_t{4}));
  EXPECT_EQ(source.asked.at("model.layers.0.mlp.down_proj.weight"), std::pair(int64_t{8}, int64_t{12}));
  int64_t parameters = 0;
  for (const auto& [name, shape] : source.asked) parameters += shape.first * shape.second;
  EXPECT_EQ(weights->num_parameters, parameters);
  EXPECT_EQ(weights->bytes, 4 * parameters);
}

TEST(DecoderWeights, TiedAndSeparateHeads) {
  ModelConfig config = small();
  EXPECT_THAT(problem_of(config, "lm_head.weight"),
              testing::AllOf(HasSubstr("lm_head"), HasSubstr("tie_word_embeddings")));
  config.tie_word_embeddings = true;
  FakeSource source;  // has an lm_head as well: it is left alone
  const auto weights = load_decoder_weights(config, source, {});
  ASSERT_TRUE(weights.ok());
  EXPECT_EQ(weights->head.weight.data, weights->embedding.data);
  EXPECT_FALSE(source.asked.contains("lm_head.weight"));
}

TEST(DecoderWeights, NamesWhatIsMissing) {
  ModelConfig config = small();
  config.qk_norm = config.qkv_bias = config.output_bias = config.mlp_bias = true;
  for (const char* name : {"model.embed_tokens.weight", "model.norm.weight", "model.layers.1.self_attn.q_norm.weight",
                           "model.layers.0.self_attn.q_proj.bias", "model.layers.0.self_attn.o_proj.bias",
                           "model.layers.1.mlp.up_proj.bias", "model.layers.1.post_attention_layernorm.weight"}) {
    EXPECT_THAT(problem_of(config, name), HasSubstr(name));
  }
}

// config.json of another model: what it does not reach would be left out in silence.
TEST(DecoderWeights, LayersBeyondTheConfigurationAreRefused) {
  FakeSource source;
  source.left_over = {"model.layers.10.mlp.up_proj.weight", "model.layers.2.mlp.up_proj.weight"};
  const auto weights = load_decoder_weights(small(), source, {});
  ASSERT_FALSE(weights.ok());
  EXPECT_THAT(std::string(weights.status().message()),
              testing::AllOf(HasSubstr("11 layers"), HasSubstr("num_hidden_layers = 2")));
  source.left_over = {"model.layers.1.self_attn.rotary_emb.inv_freq", "model.layers.1.self_attn.q_proj.bias", "other",
                      "model.layersx", "model.layers.9"};
  EXPECT_TRUE(load_decoder_weights(small(), source, {}).ok());
}

TEST(DecoderWeights, ShardsKeepTheirPart) {
  ModelConfig config = small();
  config.output_bias = config.qkv_bias = true;
  FakeSource source;
  const auto weights = load_decoder_weights(config, source, {1, 2});
  ASSERT_TRUE(weights.ok());
  const LayerWeights& layer = weights->layers[0];
  EXPECT_EQ(layer.qkv[0].weight.rows, 4);
  EXPECT_EQ(layer.qkv[0].bias.cols, 4);
  EXPECT_EQ(layer.qkv[1].weight.rows, 2);
  EXPECT_EQ(layer.output.weight.cols, 4);
  EXPECT_EQ(layer.output.weight.row_stride, 8);
  EXPECT_FALSE(layer.output.bias);  // rank 0 adds it
  EXPECT_EQ(layer.down.weight.cols, 6);
}

}  // namespace
}  // namespace assay
