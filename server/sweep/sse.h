// Incremental parser of server-sent events (the text/event-stream format): bytes in, events out, whatever the split.
//
// Owns: the unfinished line and event. Threads: one at a time.
// Errors: never throws. Lines that no field of the format explains are counted in malformed_lines(); a line or an event
// over kMaxEventBytes sets overflowed() and the rest of the stream is ignored.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace assay::sweep {

class SseParser {
 public:
  static constexpr size_t kMaxEventBytes = 8u << 20;

  // `data` is the event's data lines joined by '\n', valid during the call.
  using EventHandler = std::function<void(std::string_view data)>;

  explicit SseParser(EventHandler on_event) : on_event_(std::move(on_event)) {}

  void feed(std::string_view bytes);

  // End of the stream: an event whose lines are complete but whose closing blank line is missing is still delivered.
  void finish();

  int64_t malformed_lines() const { return malformed_lines_; }
  bool overflowed() const { return overflowed_; }
  bool has_partial_line() const { return !partial_line_.empty(); }

 private:
  void take_line(std::string_view line);
  void take_data(std::string_view value);
  void dispatch();

  EventHandler on_event_;
  std::string partial_line_;
  std::string data_;
  bool has_data_ = false;
  bool first_line_ = true;       // a byte order mark may precede it
  bool skip_line_feed_ = false;  // the last byte was a carriage return that ended a line
  bool overflowed_ = false;
  int64_t malformed_lines_ = 0;
};

}  // namespace assay::sweep
