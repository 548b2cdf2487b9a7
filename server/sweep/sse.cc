#include "server/sweep/sse.h"

namespace assay::sweep {

void SseParser::feed(std::string_view bytes) {
  while (!bytes.empty() && !overflowed_) {
    if (skip_line_feed_) {
      skip_line_feed_ = false;
      if (bytes.front() == '\n') bytes.remove_prefix(1);
      continue;
    }
    const size_t end = bytes.find_first_of("\r\n");
    const std::string_view piece = bytes.substr(0, end);
    if (partial_line_.size() + piece.size() > kMaxEventBytes) {
      overflowed_ = true;
      return;
    }
    if (end == std::string_view::npos) {
      partial_line_.append(piece);
      return;
    }
    skip_line_feed_ = bytes[end] == '\r';
    if (partial_line_.empty()) {
      take_line(piece);
    } else {
      partial_line_.append(piece);
      take_line(partial_line_);
      partial_line_.clear();
    }
    bytes.remove_prefix(end + 1);
  }
}

void SseParser::finish() {
  if (!overflowed_) dispatch();
}

void SseParser::take_line(std::string_view line) {
  if (first_line_ && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  first_line_ = false;
  if (line.empty()) return dispatch();
  if (line.front() == ':') return;  // comment, used as keep-alive
  const size_t colon = line.find(':');
  const std::string_view name = line.substr(0, colon);
  std::string_view value = colon == std::string_view::npos ? std::string_view() : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (name == "data") return take_data(value);
  if (name != "event" && name != "id" && name != "retry") ++malformed_lines_;
}

void SseParser::take_data(std::string_view value) {
  if (data_.size() + value.size() + 1 > kMaxEventBytes) {
    overflowed_ = true;
    return;
  }
  if (has_data_) data_.push_back('\n');
  data_.append(value);
  has_data_ = true;
}

void SseParser::dispatch() {
  if (!has_data_) return;
  has_data_ = false;
  on_event_(data_);
  data_.clear();
}

}  // namespace assay::sweep
