#include "engine/weights/strict_json.h"

#include <unordered_set>
#include <vector>

#include "nlohmann/json.hpp"

namespace assay {
namespace {

using nlohmann::json;
constexpr int kMaxDepth = 16;

// Watches a parse; remembers the first thing that is wrong.
class Watcher {
 public:
  bool operator()(int depth, json::parse_event_t event, const json& value) {
    if (event == json::parse_event_t::object_start) {
      keys_.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      keys_.pop_back();
    } else if (event == json::parse_event_t::key) {
      const std::string& key = value.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second && problem_.empty()) problem_ = "the key \"" + key + "\" occurs twice";
    }
    if (depth > kMaxDepth && problem_.empty()) problem_ = "nested too deeply";
    return problem_.empty();
  }
  const std::string& problem() const { return problem_; }

 private:
  std::vector<std::unordered_set<std::string>> keys_;
  std::string problem_;
};

}  // namespace

absl::StatusOr<json> parse_json_object(std::string_view text, const std::string& what) {
  Watcher watcher;
  const json::parser_callback_t callback = [&](int depth, json::parse_event_t event, json& value) {
    return watcher(depth, event, value);
  };
  json value = json::parse(text.begin(), text.end(), callback, /*allow_exceptions=*/false);
  if (!watcher.problem().empty()) return absl::InvalidArgumentError(what + ": " + watcher.problem());
  if (value.is_discarded()) return absl::InvalidArgumentError(what + ": not valid JSON");
  if (!value.is_object()) return absl::InvalidArgumentError(what + ": not a JSON object");
  return value;
}

}  // namespace assay
