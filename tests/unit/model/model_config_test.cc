#include "engine/model/model_config.h"

#include "engine/model/generation_defaults.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/unit/weights/safetensors_file.h"

namespace assay {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

json llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", 128},
          {"intermediate_size", 256},
          {"num_attention_heads", 8},
          {"num_key_value_heads", 2},
          {"num_hidden_layers", 3},
          {"vocab_size", 512},
          {"rms_norm_eps", 1e-5},
          {"max_position_embeddings", 4096},
          {"rope_theta", 500000.0},
          {"torch_dtype", "bfloat16"}};
}

json with(json config, const char* key, const json& value) {
  config[key] = value;
  return config;
}

json without(json config, const char* key) {
  config.erase(key);
  return config;
}

ModelConfig must_parse(const json& config) {
  const auto parsed = parse_model_config(config.dump(), "config.json");
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return parsed.ok() ? *parsed : ModelConfig();
}

std::string problem_of(const json& config) {
  const auto parsed = parse_model_config(config.dump(), "config.json");
  return parsed.ok() ? "no problem" : std::string(parsed.status().message());
}

json family(const char* architecture) {
  return with(llama(), "architectures", {architecture});
}

TEST(ModelConfig, Llama) {
  const ModelConfig c = must_parse(llama());
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.num_kv_heads, 2);
  EXPECT_FLOAT_EQ(c.rms_norm_eps, 1e-5f);
  EXPECT_EQ(c.declared_dtype, DType::kBF16);
  EXPECT_FALSE(c.tie_word_embeddings || c.qkv_bias || c.output_bias || c.mlp_bias || c.qk_norm);
  EXPECT_EQ(c.rope, (RopeConfig{.theta = 500000.0}));
}

TEST(ModelConfig, HeadsAndDimensions) {
  EXPECT_EQ(must_parse(without(llama(), "num_key_value_heads")).num_kv_heads, 8);
  EXPECT_EQ(must_parse(with(llama(), "num_key_value_heads", nullptr)).num_kv_heads, 8);
  EXPECT_EQ(must_parse(with(llama(), "num_key_value_heads", 1)).num_kv_heads, 1);
  EXPECT_EQ(must_parse(with(llama(), "head_dim", 64)).head_dim, 64);
  EXPECT_EQ(must_parse(with(llama(), "head_dim", nullptr)).head_dim, 16);
  EXPECT_EQ(must_parse(family("Qwen3ForCausalLM")).head_dim, 128);
  EXPECT_EQ(must_parse(with(llama(), "vocab_size", 512.0)).vocab_size, 512);
  EXPECT_THAT(problem_of(with(llama(), "num_key_value_heads", 3)), HasSubstr("num_key_value_heads"));
  EXPECT_THAT(problem_of(with(llama(), "num_attention_heads", 7)), HasSubstr("num_"));
  EXPECT_THAT(problem_of(with(llama(), "head_dim", 15)), HasSubstr("head_dim must be even"));
}

TEST(ModelConfig, Families) {
  EXPECT_TRUE(must_parse(family("Qwen2ForCausalLM")).qkv_bias);
  EXPECT_FALSE(must_parse(family("Qwen2ForCausalLM")).output_bias);
  EXPECT_TRUE(must_parse(family("Qwen3ForCausalLM")).qk_norm);
  EXPECT_FALSE(must_parse(family("Qwen3ForCausalLM")).qkv_bias);
  const ModelConfig biased = must_parse(with(with(llama(), "attention_bias", true), "mlp_bias", true));
  EXPECT_TRUE(biased.qkv_bias && biased.output_bias && biased.mlp_bias);
  EXPECT_TRUE(must_parse(with(llama(), "tie_word_embeddings", true)).tie_word_embeddings);
  EXPECT_EQ(must_parse(with(without(llama(), "architectures"), "model_type", "llama")).architecture,
            "LlamaForCausalLM");
}

TEST(ModelConfig, SlidingWindows) {
  const json mistral = family("MistralForCausalLM"), qwen2 = family("Qwen2ForCausalLM");
  must_parse(with(mistral, "sliding_window", nullptr));
  must_parse(with(mistral, "sliding_window", 4096));  // as long as the context: no effect
  EXPECT_THAT(problem_of(with(mistral, "sliding_window", 1024)), AllOf(HasSubstr("sliding_window"), HasSubstr("1024")));
  EXPECT_THAT(problem_of(with(mistral, "max_position_embeddings", 32768)), HasSubstr("sliding_window"));
  must_parse(with(with(qwen2, "sliding_window", 1024), "use_sliding_window", false));
  must_parse(with(with(qwen2, "sliding_window", 1024), "max_window_layers", 28));
  EXPECT_THAT(problem_of(with(with(qwen2, "sliding_window", 1024), "use_sliding_window", true)),
              HasSubstr("sliding_window"));
  must_parse(with(qwen2, "layer_types", {"full_attention", "full_attention", "full_attention"}));
  EXPECT_THAT(problem_of(with(qwen2, "layer_types", {"full_attention", "sliding_attention"})),
              HasSubstr("layer_types"));
}

TEST(ModelConfig, RefusesWhatItCannotCompute) {
  EXPECT_THAT(problem_of(with(llama(), "quantization_config", {{"quant_method", "awq"}})),
              HasSubstr("quantization_config"));
  must_parse(with(llama(), "quantization_config", nullptr));
  EXPECT_THAT(problem_of(with(llama(), "hidden_act", "gelu")), AllOf(HasSubstr("hidden_act"), HasSubstr("gelu")));
  EXPECT_THAT(problem_of(family("GPT2LMHeadModel")),
              AllOf(HasSubstr("GPT2LMHeadModel"), HasSubstr("LlamaForCausalLM")));
  EXPECT_THAT(problem_of(without(llama(), "architectures")), HasSubstr("model_type"));
  EXPECT_THAT(problem_of(with(llama(), "partial_rotary_factor", 0.5)), HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(problem_of(with(llama(), "torch_dtype", "float8_e4m3fn")), HasSubstr("torch_dtype"));
  EXPECT_THAT(problem_of(with(llama(), "dtype", "float16")), AllOf(HasSubstr("dtype"), HasSubstr("torch_dtype")));
  EXPECT_EQ(must_parse(with(without(llama(), "torch_dtype"), "dtype", "float16")).declared_dtype, DType::kF16);
}

TEST(ModelConfig, NamesTheWrongField) {
  for (const char* field : {"hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers",
                            "vocab_size", "max_position_embeddings"}) {
    EXPECT_THAT(problem_of(without(llama(), field)),
                AllOf(HasSubstr("config.json"), HasSubstr(field), HasSubstr("missing")));
    for (const json& bad : {json(-1), json(0), json("12"), json(1.5), json(uint64_t{1} << 63), json::array()}) {
      EXPECT_THAT(problem_of(with(llama(), field, bad)), HasSubstr(field)) << bad;
    }
  }
  EXPECT_THAT(problem_of(with(llama(), "tie_word_embeddings", 1)), HasSubstr("tie_word_embeddings"));
  EXPECT_THAT(problem_of(with(llama(), "rms_norm_eps", "x")), HasSubstr("rms_norm_eps"));
  EXPECT_THAT(problem_of(with(llama(), "eos_token_id", {1, -2})), HasSubstr("eos_token_id"));
  EXPECT_FALSE(parse_model_config("{", "config.json").ok());
  EXPECT_FALSE(parse_model_config("", "config.json").ok());
}

const json kLlama3 = {{"rope_type", "llama3"},
                      {"factor", 8.0},
                      {"low_freq_factor", 1.0},
                      {"high_freq_factor", 4.0},
                      {"original_max_position_embeddings", 8192}};

TEST(RopeConfigSpelling, ClassicAndNewSayTheSame) {
  const ModelConfig classic = must_parse(with(llama(), "rope_scaling", kLlama3));
  json parameters = kLlama3;
  parameters["rope_theta"] = 500000.0;
  const ModelConfig modern = must_parse(with(without(llama(), "rope_theta"), "rope_parameters", parameters));
  EXPECT_EQ(classic.rope.kind, RopeKind::kLlama3);
  EXPECT_EQ(classic.rope, modern.rope);
  // Both: equal is fine, different is not.
  const json both = with(with(llama(), "rope_scaling", kLlama3), "rope_parameters", parameters);
  EXPECT_EQ(must_parse(both).rope, modern.rope);
  EXPECT_EQ(must_parse(with(both, "rope_scaling", nullptr)).rope, modern.rope);
  EXPECT_THAT(problem_of(with(both, "rope_theta", 10000.0)), HasSubstr("rope_parameters"));
  json other = both;
  other["rope_scaling"]["factor"] = 32.0;
  EXPECT_THAT(problem_of(other), HasSubstr("rope_parameters"));
}

TEST(RopeConfigSpelling, OlderTypeKeyAndProblems) {
  EXPECT_EQ(must_parse(with(llama(), "rope_scaling", {{"type", "linear"}, {"factor", 2.0}})).rope.kind,
            RopeKind::kLinear);
  EXPECT_EQ(must_parse(with(llama(), "rope_scaling", {{"rope_type", "default"}})).rope.kind, RopeKind::kDefault);
  EXPECT_EQ(must_parse(without(llama(), "rope_theta")).rope.theta, 10000.0);
  EXPECT_THAT(problem_of(with(llama(), "rope_scaling", {{"rope_type", "longrope"}, {"factor", 2.0}})),
              AllOf(HasSubstr("rope_scaling"), HasSubstr("longrope")));
  EXPECT_THAT(problem_of(with(llama(), "rope_scaling", {{"rope_type", "yarn"}})), HasSubstr("factor"));
  EXPECT_THAT(problem_of(with(llama(), "rope_scaling", {{"rope_type", "linear"}, {"factor", 0.0}})),
              HasSubstr("factor"));
  EXPECT_THAT(problem_of(with(llama(), "rope_scaling", "yarn")), HasSubstr("rope_scaling"));
  json bad = kLlama3;
  bad.erase("original_max_position_embeddings");
  EXPECT_THAT(problem_of(with(llama(), "rope_scaling", bad)), HasSubstr("original_max_position_embeddings"));
}

TEST(GenerationDefaults, ReadsIdsAndSampling) {
  TempFolder folder;
  EXPECT_TRUE(load_generation_defaults(folder.path())->eos_token_ids.empty());
  folder.write(
      "generation_config.json",
      R"({"eos_token_id": [7, 9], "temperature": 0.6, "top_p": 0.95, "top_k": 20, "repetition_penalty": 1.05})");
  const auto defaults = load_generation_defaults(folder.path());
  ASSERT_TRUE(defaults.ok());
  EXPECT_THAT(defaults->eos_token_ids, testing::ElementsAre(7, 9));
  EXPECT_FLOAT_EQ(defaults->sampling.temperature, 0.6f);
  EXPECT_EQ(defaults->sampling.top_k, 20);
  EXPECT_FLOAT_EQ(defaults->sampling.repetition_penalty, 1.05f);
  folder.write("generation_config.json", R"({"eos_token_id": 7, "top_p": 1.5})");
  EXPECT_THAT(std::string(load_generation_defaults(folder.path()).status().message()), HasSubstr("top_p"));
}

}  // namespace
}  // namespace assay
