#include "server/text/pattern.h"

namespace assay {

Pattern Pattern::parse(const JsonNode& node) {
  Pattern pattern;
  if (const auto literal = node.find("String")) {
    if (literal->string().empty()) literal->fail("must not be empty");
    pattern.what_ = literal->string();
    return pattern;
  }
  const auto expression = node.find("Regex");
  if (!expression) node.fail("must have a field \"String\" or \"Regex\"");
  auto regex = Regex::compile(expression->string());
  if (!regex.ok()) expression->fail(std::string(regex.status().message()));
  pattern.what_ = *std::move(regex);
  return pattern;
}

Pattern Pattern::regex(std::string_view expression) {
  Pattern pattern;
  pattern.what_ = Regex::compile(expression).value();
  return pattern;
}

void Pattern::Finder::find(std::string_view text, std::vector<ByteRange>& matches) {
  matches.clear();
  if (const auto* literal = std::get_if<std::string>(&pattern_->what_)) {
    for (size_t at = text.find(*literal); at != std::string_view::npos;
         at = text.find(*literal, at + literal->size())) {
      matches.push_back({at, at + literal->size()});
    }
    return;
  }
  if (matcher_) {
    matcher_->reset(text);
  } else {
    matcher_.emplace(std::get<Regex>(pattern_->what_), text);
  }
  while (const auto range = matcher_->next()) matches.push_back({range->first, range->second});
}

std::string Pattern::replace(std::string_view text, std::string_view content) const {
  std::vector<ByteRange> matches;
  Finder(*this).find(text, matches);
  std::string out;
  size_t last = 0;
  for (const ByteRange& match : matches) {
    out.append(text.substr(last, match.begin - last)).append(content);
    last = match.end;
  }
  out.append(text.substr(last));
  return out;
}

}  // namespace assay
