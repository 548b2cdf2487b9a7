#include "server/service/bounded_json.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

// Key comparisons of building the value: about 0.1 s. Reached only by megabytes of objects that are all near kMaxJsonKeys.
constexpr int64_t kMaxKeyComparisons = int64_t{1} << 25;

// "[json.exception.parse_error.101] parse error at line 1, column 2: ..." without the library's own prefix.
std::string reason(const std::string& what) {
  const size_t end = what.find("] ");
  return end == std::string::npos ? what : what.substr(end + 2);
}

// Builds nothing. A function that gives false ends the pass, with `problem` saying why.
class Check final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }

  bool key(string_t&) override {
    num_comparisons_ += num_keys_.back();
    if (++num_keys_.back() > kMaxJsonKeys) return fail(fmt::format("has an object of more than {} keys", kMaxJsonKeys));
    return num_comparisons_ <= kMaxKeyComparisons || fail("has too many objects of very many keys");
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    return fail("is not valid JSON: " + reason(error.what()));
  }

  std::string problem;

 private:
  bool fail(const std::string& what) {
    problem = what;
    return false;
  }
  bool open() {
    num_keys_.push_back(0);
    return num_keys_.size() <= kMaxJsonDepth || fail(fmt::format("is nested deeper than {} levels", kMaxJsonDepth));
  }
  bool close() {
    num_keys_.pop_back();
    return true;
  }

  std::vector<int> num_keys_;  // of each open object; arrays have none
  int64_t num_comparisons_ = 0;
};

}  // namespace

absl::StatusOr<Json> parse_bounded_json(std::string_view text) {
  Check check;
  if (!Json::sax_parse(text, &check)) return absl::InvalidArgumentError(check.problem);
  return Json::parse(text);  // throws nothing: the text has just been parsed
}

}  // namespace assay
