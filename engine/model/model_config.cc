#include "engine/model/model_config.h"

#include <filesystem>

#include "engine/weights/mapped_file.h"
#include "engine/weights/strict_json.h"
#include "nlohmann/json.hpp"
#include "spdlog/spdlog.h"

namespace assay {
namespace {

using nlohmann::json;
constexpr size_t kMaxConfigBytes = 4 << 20;
constexpr int64_t kMaxSize = 1 << 24;  // of one dimension: products of two stay far from overflow
constexpr int64_t kMaxPosition = int64_t{1} << 30;

enum class WindowRule : uint8_t { kNone, kAlways, kIfEnabled };  // what switches a sliding window on

// What the published implementation of an architecture takes for granted; config.json states the rest.
struct Family {
  const char* architecture;
  const char* model_type;
  bool qkv_bias;              // always there
  bool attention_bias_field;  // `attention_bias` adds biases to q, k, v and o
  bool mlp_bias_field;        // `mlp_bias` adds biases to gate, up and down
  bool qk_norm;
  int32_t default_head_dim;  // 0 = hidden_size / num_attention_heads
  WindowRule window;
  int32_t default_window;  // tokens where the field is absent; 0 = none
};

constexpr Family kFamilies[] = {
    {"LlamaForCausalLM", "llama", false, true, true, false, 0, WindowRule::kNone, 0},
    {"MistralForCausalLM", "mistral", false, false, false, false, 0, WindowRule::kAlways, 4096},
    {"Qwen2ForCausalLM", "qwen2", true, false, false, false, 0, WindowRule::kIfEnabled, 4096},
    {"Qwen3ForCausalLM", "qwen3", false, true, false, true, 128, WindowRule::kIfEnabled, 4096},
};

const Family* find_family(JsonFields& fields) {
  const std::vector<std::string> architectures = fields.texts("architectures");
  const std::string model_type = fields.text("model_type", "");
  std::string known;
  for (const Family& family : kFamilies) {
    if (architectures.empty() ? model_type == family.model_type : architectures.front() == family.architecture) {
      return &family;
    }
    known += (known.empty() ? "" : ", ") + std::string(family.architecture);
  }
  if (architectures.empty()) {
    fields.fail("model_type", "\"" + model_type + "\" is not supported (no architectures; known: " + known + ")");
  } else {
    fields.fail("architectures", "\"" + architectures.front() + "\" is not supported; known: " + known);
  }
  return nullptr;
}

void refuse_unsupported(JsonFields& fields) {
  for (const char* name : {"quantization_config", "compression_config"}) {
    if (fields.has(name))
      fields.fail(name, "is set: quantised weights are not supported, use a bf16, f16 or f32 checkpoint");
  }
  const std::string activation = fields.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    fields.fail("hidden_act", "\"" + activation + "\" is not supported (silu is)");
  }
  if (fields.number("partial_rotary_factor", 1.0, 0.0, 1.0) != 1.0) {
    fields.fail("partial_rotary_factor", "other than 1 is not supported");
  }
}

// The published implementation does not look at the field, so neither do we; but whoever wrote it meant something.
void warn_of_ignored_window(JsonFields& fields, int64_t max_position) {
  const int64_t window = fields.integer("sliding_window", 0, 0, kMaxPosition);
  if (window == 0 || window >= max_position) return;
  spdlog::warn("{}: sliding_window of {} tokens is ignored: this architecture has full attention (a model with a window "
               "names another one, such as MistralForCausalLM)", fields.where(), window);
}

// A window that covers every position changes nothing and is fine.
void refuse_sliding_window(const Family& family, JsonFields& fields, const json& object, int64_t max_position) {
  for (const std::string& type : fields.texts("layer_types")) {
    if (type != "full_attention") fields.fail("layer_types", "has \"" + type + "\": only full_attention is supported");
  }
  if (family.window == WindowRule::kNone) return warn_of_ignored_window(fields, max_position);
  const bool enabled = family.window == WindowRule::kAlways ||
                       (family.window == WindowRule::kIfEnabled && fields.boolean("use_sliding_window", false));
  if (!enabled) return;
  const bool stated_off = object.contains("sliding_window") && object["sliding_window"].is_null();
  const int64_t window = stated_off ? 0 : fields.integer("sliding_window", family.default_window, 0, kMaxPosition);
  if (window > 0 && window < max_position) {
    fields.fail("sliding_window",
                "of " + std::to_string(window) +
                    " tokens is not supported; set it to null for full attention (a different model)");
  }
}

std::optional<DType> read_dtype(JsonFields& fields) {
  const std::string modern = fields.text("dtype", ""), classic = fields.text("torch_dtype", "");
  if (!modern.empty() && !classic.empty() && modern != classic) {
    fields.fail("dtype", "says \"" + modern + "\", but torch_dtype says \"" + classic + "\"");
  }
  const std::string name = modern.empty() ? classic : modern;
  if (name.empty()) return std::nullopt;
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (name == dtype_name(dtype)) return dtype;
  }
  fields.fail(modern.empty() ? "torch_dtype" : "dtype",
              "\"" + name + "\" is not supported (float32, bfloat16, float16 are)");
  return std::nullopt;
}

void read_sizes(const Family& family, JsonFields& fields, ModelConfig& config) {
  const auto size = [&](const char* name, std::optional<int64_t> otherwise, int64_t max) {
    return static_cast<int32_t>(fields.integer(name, otherwise, 1, max));
  };
  config.vocab_size = size("vocab_size", std::nullopt, kMaxSize);
  config.hidden_size = size("hidden_size", std::nullopt, kMaxSize);
  config.intermediate_size = size("intermediate_size", std::nullopt, kMaxSize);
  config.num_layers = size("num_hidden_layers", std::nullopt, 4096);
  config.num_heads = size("num_attention_heads", std::nullopt, 4096);
  config.num_kv_heads = size("num_key_value_heads", config.num_heads, 4096);
  if (config.num_heads % config.num_kv_heads != 0) {
    fields.fail("num_key_value_heads", "must divide num_attention_heads");
  }
  const int64_t split = family.default_head_dim > 0 ? family.default_head_dim : config.hidden_size / config.num_heads;
  if (!fields.has("head_dim") && family.default_head_dim == 0 && config.hidden_size % config.num_heads != 0) {
    fields.fail("hidden_size", "must be a multiple of num_attention_heads where head_dim is not stated");
  }
  config.head_dim = size("head_dim", std::max<int64_t>(1, split), 4096);
  if (config.head_dim % 2 != 0) fields.fail("head_dim", "must be even");
  config.rms_norm_eps = static_cast<float>(fields.number("rms_norm_eps", 1e-6, 0.0, 1.0));
  config.max_position_embeddings = fields.integer("max_position_embeddings", std::nullopt, 1, kMaxPosition);
}

void read_family_switches(const Family& family, JsonFields& fields, ModelConfig& config) {
  const bool attention_bias = fields.boolean("attention_bias", false);
  const bool mlp_bias = fields.boolean("mlp_bias", false);
  if (attention_bias && !family.attention_bias_field) fields.fail("attention_bias", "is not part of this architecture");
  if (mlp_bias && !family.mlp_bias_field) fields.fail("mlp_bias", "is not part of this architecture");
  config.qkv_bias = family.qkv_bias || attention_bias;
  config.output_bias = attention_bias;
  config.mlp_bias = mlp_bias;
  config.qk_norm = family.qk_norm;
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
}

}  // namespace

absl::StatusOr<ModelConfig> parse_model_config(std::string_view text, const std::string& where) {
  const absl::StatusOr<json> object = parse_json_object(text, where);
  if (!object.ok()) return object.status();
  JsonFields fields(*object, where);
  ModelConfig config;
  const Family* family = find_family(fields);
  if (family == nullptr) return fields.status();
  config.architecture = family->architecture;
  refuse_unsupported(fields);
  read_sizes(*family, fields, config);
  read_family_switches(*family, fields, config);
  refuse_sliding_window(*family, fields, *object, config.max_position_embeddings);
  config.rope = read_rope_config(fields);
  config.declared_dtype = read_dtype(fields);
  config.eos_token_ids = fields.token_ids("eos_token_id");
  if (!fields.status().ok()) return fields.status();
  return config;
}

absl::StatusOr<ModelConfig> load_model_config(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / "config.json").string();
  absl::StatusOr<std::string> text = read_text_file(path, kMaxConfigBytes);
  if (!text.ok()) return text.status();
  return parse_model_config(*text, path);
}

}  // namespace assay
