#include "engine/model/rope_config.h"

#include <array>
#include <string>
#include <utility>

#include "nlohmann/json.hpp"

namespace assay {
namespace {

using nlohmann::json;
constexpr double kMaxTheta = 1e12;
constexpr double kMaxFactor = 1e6;
constexpr int64_t kMaxPosition = int64_t{1} << 30;

constexpr std::array<std::pair<const char*, RopeKind>, 5> kKinds = {{{"default", RopeKind::kDefault},
                                                                     {"linear", RopeKind::kLinear},
                                                                     {"dynamic", RopeKind::kDynamic},
                                                                     {"yarn", RopeKind::kYarn},
                                                                     {"llama3", RopeKind::kLlama3}}};

void read_kind(JsonFields& fields, RopeConfig& rope) {
  const std::string type = fields.text("rope_type", fields.text("type", "default"));  // "type": older files
  for (const auto& [name, kind] : kKinds) {
    if (type == name) {
      rope.kind = kind;
      return;
    }
  }
  fields.fail("rope_type", "\"" + type + "\" is not supported (default, linear, dynamic, yarn, llama3 are)");
}

std::optional<double> optional_number(JsonFields& fields, const char* name, double max) {
  if (!fields.has(name)) return std::nullopt;
  return fields.number(name, 0.0, 0.0, max);
}

// The fields that `rope_scaling` and `rope_parameters` share.
RopeConfig read_scaling(JsonFields& fields) {
  RopeConfig rope;
  read_kind(fields, rope);
  if (fields.number("partial_rotary_factor", 1.0, 0.0, 1.0) != 1.0) {
    fields.fail("partial_rotary_factor", "other than 1 is not supported");
  }
  if (rope.kind == RopeKind::kDefault) return rope;
  rope.factor = fields.number("factor", std::nullopt, 1.0, kMaxFactor);
  rope.original_max_position = fields.integer("original_max_position_embeddings", 0, 0, kMaxPosition);
  if (rope.kind == RopeKind::kYarn) {
    rope.attention_factor = optional_number(fields, "attention_factor", 100.0);
    rope.mscale = optional_number(fields, "mscale", 100.0);
    rope.mscale_all_dim = optional_number(fields, "mscale_all_dim", 100.0);
    rope.beta_fast = fields.number("beta_fast", 32.0, 1e-6, 1e6);
    rope.beta_slow = fields.number("beta_slow", 1.0, 1e-6, 1e6);
    rope.truncate = fields.boolean("truncate", true);
  }
  if (rope.kind == RopeKind::kLlama3) {
    rope.low_freq_factor = fields.number("low_freq_factor", std::nullopt, 1e-6, 1e6);
    rope.high_freq_factor = fields.number("high_freq_factor", std::nullopt, 1e-6, 1e6);
    if (rope.high_freq_factor <= rope.low_freq_factor) fields.fail("high_freq_factor", "must be above low_freq_factor");
    if (rope.original_max_position == 0) fields.fail("original_max_position_embeddings", "is missing");
  }
  return rope;
}

// A nested object as fields of its own; its first problem becomes the parent's.
template <class Read>
RopeConfig read_nested(JsonFields& parent, const char* name, const json& object, const Read& read) {
  JsonFields nested(object, parent.where() + ": " + name);
  const RopeConfig rope = read(nested);
  if (!nested.status().ok() && parent.status().ok())
    parent.fail(name, "is wrong: " + std::string(nested.status().message()));
  return rope;
}

RopeConfig read_parameters(JsonFields& fields, double default_theta) {
  RopeConfig rope = read_scaling(fields);
  rope.theta = fields.number("rope_theta", default_theta, 1.0, kMaxTheta);
  return rope;
}

}  // namespace

RopeConfig read_rope_config(JsonFields& fields) {
  const double theta = fields.number("rope_theta", RopeConfig().theta, 1.0, kMaxTheta);
  const json* scaling = fields.object("rope_scaling");
  const json* parameters = fields.object("rope_parameters");
  RopeConfig classic;
  if (scaling != nullptr) classic = read_nested(fields, "rope_scaling", *scaling, read_scaling);
  classic.theta = theta;
  if (parameters == nullptr) return classic;

  const RopeConfig rope = read_nested(fields, "rope_parameters", *parameters,
                                      [&](JsonFields& nested) { return read_parameters(nested, theta); });
  RopeConfig stated = rope;  // what the classic fields, where present, must agree with
  if (fields.has("rope_theta")) stated.theta = theta;
  if (scaling != nullptr) {
    classic.theta = stated.theta;
    stated = classic;
  }
  if (stated != rope) {
    fields.fail("rope_parameters",
                "says something else than rope_theta and rope_scaling; keep one of the two spellings");
  }
  return rope;
}

}  // namespace assay
