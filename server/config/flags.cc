#include "server/config/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <type_traits>

#include "server/config/values.h"

namespace assay {
namespace {

template <typename T>
constexpr bool kIsList = std::is_same_v<T, std::vector<std::string>>;

absl::Status wrong(const std::string& source, const std::string& text, const std::string& right) {
  return absl::InvalidArgumentError(fmt::format("{}: \"{}\" is not {}", source, text, right));
}

absl::Status check_range(const Flag& flag, int64_t value, const std::string& text, const std::string& source) {
  if (value >= flag.minimum && value <= flag.maximum) return absl::OkStatus();
  if (flag.minimum == flag.maximum) return wrong(source, text, fmt::format("{}, the only value here today", flag.minimum));
  return wrong(source, text, flag.maximum == INT32_MAX || flag.maximum == INT64_MAX
                                 ? fmt::format("a number from {} up", flag.minimum)
                                 : fmt::format("a number from {} to {}", flag.minimum, flag.maximum));
}

absl::Status check_choice(const Flag& flag, const std::string& text, const std::string& source) {
  if (flag.choices.empty() || std::find(flag.choices.begin(), flag.choices.end(), text) != flag.choices.end()) {
    return absl::OkStatus();
  }
  return wrong(source, text, fmt::format("one of: {}", fmt::join(flag.choices, ", ")));
}

absl::Status set(const Flag&, const std::vector<std::string>& texts, const std::string&, std::vector<std::string>& value) {
  value = texts;
  return absl::OkStatus();
}

absl::Status set(const Flag& flag, const std::vector<std::string>& texts, const std::string& source, std::string& value) {
  value = texts.back();
  return check_choice(flag, value, source);
}

absl::Status set(const Flag&, const std::vector<std::string>& texts, const std::string& source, bool& value) {
  const std::optional<bool> parsed = parse_boolean(texts.back());
  if (!parsed) return wrong(source, texts.back(), "true or false");
  value = *parsed;
  return absl::OkStatus();
}

absl::Status set(const Flag& flag, const std::vector<std::string>& texts, const std::string& source, int32_t& value) {
  const std::optional<int64_t> parsed = parse_integer(texts.back());
  if (!parsed) return wrong(source, texts.back(), "a whole number");
  if (absl::Status status = check_range(flag, *parsed, texts.back(), source); !status.ok()) return status;
  value = static_cast<int32_t>(*parsed);
  return check_choice(flag, texts.back(), source);
}

absl::Status set(const Flag& flag, const std::vector<std::string>& texts, const std::string& source, double& value) {
  const std::optional<double> parsed = parse_number(texts.back());
  const auto minimum = static_cast<double>(flag.minimum);
  const bool enough = parsed && (flag.from_minimum ? *parsed >= minimum : *parsed > minimum);
  if (!enough || *parsed > static_cast<double>(flag.maximum)) {
    const char* least = flag.from_minimum ? "a number from {} to {}" : "a number above {} and at most {}";
    return wrong(source, texts.back(), fmt::format(fmt::runtime(least), flag.minimum, flag.maximum));
  }
  value = *parsed;
  return absl::OkStatus();
}

absl::Status set(const Flag& flag, const std::vector<std::string>& texts, const std::string& source,
                 std::optional<uint64_t>& value) {
  const std::optional<int64_t> parsed = parse_integer(texts.back());
  if (!parsed) return wrong(source, texts.back(), "a whole number");
  if (absl::Status status = check_range(flag, *parsed, texts.back(), source); !status.ok()) return status;
  value = static_cast<uint64_t>(*parsed);
  return absl::OkStatus();
}

absl::Status set(const Flag& flag, const std::vector<std::string>& texts, const std::string& source, ByteSize& value) {
  const std::optional<ByteSize> parsed = parse_byte_size(texts.back());
  if (!parsed) return wrong(source, texts.back(), "a size such as 4096, 64KiB, 8MiB or 1.5GiB");
  value = *parsed;
  return check_range(flag, value.bytes, texts.back(), source);
}

absl::Status set(const Flag& flag, const std::vector<std::string>& texts, const std::string& source,
                 std::optional<ByteSize>& value) {
  return set(flag, texts, source, value.emplace());
}

absl::Status set(const Flag& flag, const std::vector<std::string>& texts, const std::string& source, Duration& value) {
  const std::optional<Duration> parsed = parse_duration(texts.back());
  if (!parsed) return wrong(source, texts.back(), "a time such as 250ms, 30s or 2min");
  value = *parsed;
  return check_range(flag, value.time.count(), texts.back(), source);
}

std::string text_of(const std::string& value) { return value; }
std::string text_of(const std::vector<std::string>& value) { return fmt::format("{}", fmt::join(value, ",")); }
std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(int32_t value) { return std::to_string(value); }
std::string text_of(double value) { return fmt::format("{}", value); }
std::string text_of(const std::optional<uint64_t>& value) { return value ? std::to_string(*value) : ""; }
std::string text_of(ByteSize value) { return byte_size_text(value); }
std::string text_of(const std::optional<ByteSize>& value) { return value ? byte_size_text(*value) : ""; }
std::string text_of(Duration value) { return duration_text(value); }

}  // namespace

const Flag* find_flag(std::string_view name) {
  for (const Flag& flag : serve_flags()) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

std::string config_key(const Flag& flag) {
  std::string key = flag.name;
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

std::string variable_name(const Flag& flag) {
  std::string name = "ASSAY_" + config_key(flag);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

bool is_list(const Flag& flag) { return std::holds_alternative<std::vector<std::string> ServeConfig::*>(flag.target); }
bool is_boolean(const Flag& flag) { return std::holds_alternative<bool ServeConfig::*>(flag.target); }

absl::Status set_flag(const Flag& flag, const std::vector<std::string>& texts, const std::string& source, ServeConfig& config) {
  const bool has_empty = std::find(texts.begin(), texts.end(), "") != texts.end();
  if ((texts.empty() && !is_list(flag)) || (flag.filled && (texts.empty() || has_empty))) {
    return absl::InvalidArgumentError(source + " needs a value that is not empty");
  }
  return std::visit([&](auto member) { return set(flag, texts, source, config.*member); }, flag.target);
}

std::string flag_text(const Flag& flag, const ServeConfig& config) {
  std::string text = std::visit([&](auto member) { return text_of(config.*member); }, flag.target);
  if (flag.secret && !text.empty()) return "set";
  return text;
}

std::string default_text(const Flag& flag) {
  if (flag.default_text != nullptr) return flag.default_text;
  return flag_text(flag, ServeConfig{});
}

EngineConfig engine_config(const ServeConfig& config) {
  EngineConfig engine;
  engine.model_dir = config.model;
  engine.dummy_weights = config.load_format == "dummy";
  engine.device = config.device;
  engine.threads = config.threads;
  engine.kv_cache_dtype = config.kv_cache_dtype;
  engine.kv_pool = config.kv_pool;
  engine.max_model_len = config.max_model_len;
  engine.max_num_seqs = config.max_num_seqs;
  engine.max_num_batched_tokens = config.max_num_batched_tokens;
  engine.block_size = config.block_size;
  engine.max_num_queued_reqs = config.max_num_queued_reqs;
  engine.kv_cache_memory_bytes = config.kv_cache_memory.bytes;
  engine.enable_prefix_caching = config.enable_prefix_caching;
  engine.seed = config.seed;
  engine.max_logprobs = config.max_logprobs;
  engine.kv_radius = config.kv_radius;
  engine.kv_bound = config.kv_bound;
  engine.kv_gate = config.kv_gate;
  engine.kv_tau = config.kv_tau;
  engine.kv_tau_v = config.kv_tau_v;
  engine.kv_delta = config.kv_delta;
  engine.kv_balance = config.kv_balance;
  engine.kv_rotation = config.kv_rotation;
  engine.kv_outlier_pairs = config.kv_outlier_pairs;
  engine.kv_dither_stream = config.kv_dither_stream;
  engine.kv_prefill_meter = config.kv_prefill_meter;
  engine.kv_telemetry = config.kv_telemetry;
  engine.kv_seed = config.kv_seed;
  engine.kv_backing = config.kv_backing;
  engine.kv_backing_memory_bytes = config.kv_backing_memory.bytes;
  if (config.kv_repair_cache_memory) engine.kv_repair_cache_memory_bytes = config.kv_repair_cache_memory->bytes;
  engine.kv_exact_layers = parse_numbers(config.kv_exact_layers).value_or(std::vector<int32_t>());
  engine.kv_audit_rate = config.kv_audit_rate;
  return engine;
}

}  // namespace assay
