#include "server/http/message.h"

#include <algorithm>
#include <cctype>

namespace assay::http {

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [&](char x, char y) { return lower(x) == lower(y); });
}

std::string_view HttpRequest::header(std::string_view name) const {
  for (const Header& header : headers) {
    if (equals_ignoring_case(header.first, name)) return header.second;
  }
  return {};
}

Reply json_reply(int status, std::string body) {
  Reply reply;
  reply.status = status;
  reply.headers.emplace_back("Content-Type", "application/json");
  reply.body = std::move(body);
  return reply;
}

}  // namespace assay::http
