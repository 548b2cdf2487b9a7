#include "server/config/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

namespace assay {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr Unit kByteUnits[] = {{"", 1}, {"B", 1}, {"KiB", 1024.0}, {"MiB", 1024.0 * 1024}, {"GiB", 1024.0 * 1024 * 1024},
                               {"TiB", 1024.0 * 1024 * 1024 * 1024}};
constexpr Unit kTimeUnits[] = {{"", 1000}, {"ms", 1}, {"s", 1000}, {"min", 60'000}};

// "12.5 GiB" -> 12.5 x factor, when it is a whole number below 2^53.
template <size_t N>
std::optional<int64_t> with_unit(std::string_view text, const Unit (&units)[N]) {
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc()) return std::nullopt;
  std::string_view rest = text.substr(static_cast<size_t>(end - text.data()));
  if (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  for (const Unit& unit : units) {
    if (unit.name != rest) continue;
    const double value = std::floor(number * unit.factor);
    if (!(value >= 0.0 && value < 9.0e15)) return std::nullopt;
    return static_cast<int64_t>(value);
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<bool> parse_boolean(std::string_view text) {
  for (const std::string_view yes : {"true", "1", "on", "yes"}) {
    if (text == yes) return true;
  }
  for (const std::string_view no : {"false", "0", "off", "no"}) {
    if (text == no) return false;
  }
  return std::nullopt;
}

std::optional<std::vector<int32_t>> parse_numbers(const std::vector<std::string>& texts) {
  constexpr int64_t kMost = 99'999;
  std::set<int32_t> numbers;
  for (const std::string& text : texts) {
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find_first_of(",+", begin), text.size());
      const std::string_view part = std::string_view(text).substr(begin, end - begin);
      const size_t dash = part.find('-', 1);
      const std::optional<int64_t> first = parse_integer(part.substr(0, dash));
      const std::optional<int64_t> last = dash == part.npos ? first : parse_integer(part.substr(dash + 1));
      if (!first || !last || *first < 0 || *last < *first || *last > kMost) return std::nullopt;
      for (int64_t number = *first; number <= *last; ++number) numbers.insert(static_cast<int32_t>(number));
      begin = end + 1;
    }
  }
  return std::vector<int32_t>(numbers.begin(), numbers.end());
}

std::optional<ByteSize> parse_byte_size(std::string_view text) {
  const std::optional<int64_t> bytes = with_unit(text, kByteUnits);
  return bytes ? std::optional<ByteSize>(ByteSize{*bytes}) : std::nullopt;
}

std::optional<Duration> parse_duration(std::string_view text) {
  const std::optional<int64_t> milliseconds = with_unit(text, kTimeUnits);
  return milliseconds ? std::optional<Duration>(Duration{std::chrono::milliseconds(*milliseconds)}) : std::nullopt;
}

std::string byte_size_text(ByteSize size) {
  for (const Unit& unit : {kByteUnits[4], kByteUnits[3], kByteUnits[2]}) {
    const auto factor = static_cast<int64_t>(unit.factor);
    if (size.bytes >= factor && size.bytes % factor == 0) return fmt::format("{}{}", size.bytes / factor, unit.name);
  }
  return std::to_string(size.bytes);
}

std::string duration_text(Duration duration) {
  const int64_t milliseconds = duration.time.count();
  if (milliseconds % 1000 == 0) return fmt::format("{}s", milliseconds / 1000);
  return fmt::format("{}ms", milliseconds);
}

}  // namespace assay
