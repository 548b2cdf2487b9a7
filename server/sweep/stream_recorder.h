// Turns the bytes of one streamed response into a RequestRecord: which token came when, and how it ended.
//
// Owns: the record while the exchange runs. Threads: one at a time (the I/O thread).
// Errors: every way a response can be wrong becomes an outcome and a kind of the record.
#pragma once

#include <string>
#include <string_view>

#include "server/sweep/chunk.h"
#include "server/sweep/record.h"
#include "server/sweep/sse.h"
#include "server/sweep/transfer.h"

namespace assay::sweep {

class StreamRecorder final : public ResponseSink {
 public:
  // `requested_output_tokens` = 0: no exact length was asked for.
  StreamRecorder(double scheduled_s, double sent_s, int64_t requested_output_tokens);
  StreamRecorder(const StreamRecorder&) = delete;  // the parser's handler refers to this
  StreamRecorder& operator=(const StreamRecorder&) = delete;

  bool on_header(int status, std::string_view content_type, double now_s) override;
  bool on_body(std::string_view bytes, double now_s) override;

  // The same for protocols whose messages need no parsing.
  void on_chunk(const Chunk& chunk, double now_s);
  // The server ended the stream with an error of its protocol; `because_of_load`: it counts as rejected.
  void refuse(std::string kind, std::string detail, bool because_of_load);

  // Once, after the exchange.
  RequestRecord finish(const TransferEnd& end, double now_s);

 private:
  void take(const Chunk& chunk);
  void fail(std::string kind, std::string detail);
  void judge(const TransferEnd& end);
  void complete();

  RequestRecord record_;
  SseParser parser_;
  double now_s_ = 0.0;
  bool done_ = false;       // [DONE] was seen
  bool streaming_ = false;  // status 200 and the right content type
  bool failed_ = false;     // record_.kind is final whatever the transport says
  std::string error_body_;  // the start of a body that is not a stream
};

}  // namespace assay::sweep
