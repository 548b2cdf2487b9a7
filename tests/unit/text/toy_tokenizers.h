// The toy tokenizers of tests/data/tokenizers: a base file, with fields replaced.
#pragma once

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "server/text/tokenizer_json.h"

namespace assay {

inline nlohmann::json read_test_json(const std::string& name) {
  std::ifstream file(std::string(ASSAY_TEST_DATA) + "/tokenizers/" + name);
  return nlohmann::json::parse(file);
}

// `base`: bytes, spm or unk. `patch`: fields of tokenizer.json to replace; those of `model` one by one.
inline nlohmann::json toy_json(const std::string& base, const nlohmann::json& patch = nlohmann::json::object()) {
  nlohmann::json root = read_test_json("base_" + base + ".json");
  for (const auto& [key, value] : patch.items()) {
    if (key == "model") {
      root["model"].update(value);
    } else {
      root[key] = value;
    }
  }
  return root;
}

inline absl::StatusOr<std::shared_ptr<const Tokenizer>> load_toy(const nlohmann::json& root,
                                                                 TokenizerConfig config = {}) {
  return parse_tokenizer_json(root.dump(), std::move(config));
}

inline std::shared_ptr<const Tokenizer> toy(const std::string& base,
                                            const nlohmann::json& patch = nlohmann::json::object()) {
  return load_toy(toy_json(base, patch)).value();
}

}  // namespace assay
