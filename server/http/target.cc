#include <charconv>

#include "server/http/request_reader.h"

namespace assay::http {
namespace {

bool percent_decode(std::string_view text, std::string& out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return false;
    unsigned value = 0;
    const auto [end, error] = std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16);
    if (error != std::errc() || end != text.data() + i + 3) return false;
    out += static_cast<char>(value);
    i += 2;
  }
  return true;
}

}  // namespace

bool split_target(std::string_view target, std::string& path, std::string& query) {
  if (!target.empty() && target.front() != '/') {
    const size_t scheme = target.find("://");
    const size_t slash = scheme == std::string_view::npos ? scheme : target.find('/', scheme + 3);
    target = slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
  }
  const size_t mark = target.find('?');
  query = mark == std::string_view::npos ? "" : std::string(target.substr(mark + 1));
  std::string decoded;
  if (!percent_decode(target.substr(0, mark), decoded)) return false;
  path.clear();
  for (const char c : decoded) {
    if (c == '/' && !path.empty() && path.back() == '/') continue;
    path += c;
  }
  if (path.size() > 1 && path.back() == '/') path.pop_back();
  return true;
}

}  // namespace assay::http
