// Typed reading of the fields of a JSON object. The first thing that is wrong is kept and names its field; later reads
// go on with defaults, so that a reader is a list of fields and one check at the end. null counts as absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json_fwd.hpp"

namespace assay {

class JsonFields {
 public:
  // `object` must outlive this; `where` starts every message, e.g. the file's path.
  JsonFields(const nlohmann::json& object, std::string where);

  bool has(const char* name) const;
  int64_t integer(const char* name, std::optional<int64_t> otherwise, int64_t min, int64_t max);
  double number(const char* name, std::optional<double> otherwise, double min, double max);
  bool boolean(const char* name, bool otherwise);
  std::string text(const char* name, const std::string& otherwise);
  std::vector<std::string> texts(const char* name);
  std::vector<int32_t> token_ids(const char* name);  // one id or a list of them; empty where absent
  const nlohmann::json* object(const char* name);    // nullptr where absent

  void fail(const std::string& name, const std::string& problem);
  const absl::Status& status() const { return status_; }
  const std::string& where() const { return where_; }

 private:
  const nlohmann::json* find(const char* name) const;

  const nlohmann::json& object_;
  std::string where_;
  absl::Status status_;
};

}  // namespace assay
