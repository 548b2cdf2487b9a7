#include "server/sweep/stream_recorder.h"

#include <algorithm>
#include <cctype>

namespace assay::sweep {
namespace {

constexpr size_t kMaxErrorBodyBytes = 512;

bool starts_with_ignoring_case(std::string_view text, std::string_view lower_prefix) {
  return text.size() >= lower_prefix.size() &&
         std::equal(lower_prefix.begin(), lower_prefix.end(), text.begin(),
                    [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); });
}

const char* kind_of(TransferError error) {
  switch (error) {
    case TransferError::kConnectionRefused:
      return "connection_refused";
    case TransferError::kConnectFailed:
      return "connect_failed";
    case TransferError::kConnectionReset:
      return "connection_reset";
    case TransferError::kClosedEarly:
      return "closed_early";
    case TransferError::kMalformedHttp:
      return "malformed_http";
    case TransferError::kTimeout:
      return "timeout";
    case TransferError::kNone:
    case TransferError::kStopped:
      return "truncated_stream";
  }
  return "unknown";
}

}  // namespace

StreamRecorder::StreamRecorder(double scheduled_s, double sent_s, int64_t requested_output_tokens)
    : parser_([this](std::string_view data) { take(parse_chunk(data)); }) {
  record_.scheduled_s = scheduled_s;
  record_.sent_s = sent_s;
  record_.requested_output_tokens = requested_output_tokens;
  record_.text_times_s.reserve(static_cast<size_t>(std::clamp<int64_t>(requested_output_tokens, 16, 4096)));
}

bool StreamRecorder::on_header(int status, std::string_view content_type, double) {
  record_.http_status = status;
  if (status == 200 && !starts_with_ignoring_case(content_type, "text/event-stream")) {
    fail("wrong_content_type", content_type.empty() ? "no Content-Type" : std::string(content_type));
  }
  streaming_ = status == 200 && !failed_;
  return true;  // a body that is no stream is read for its message, and so that the connection can be used again
}

bool StreamRecorder::on_body(std::string_view bytes, double now_s) {
  if (!streaming_) {
    error_body_.append(bytes.substr(0, kMaxErrorBodyBytes - std::min(kMaxErrorBodyBytes, error_body_.size())));
    return true;
  }
  now_s_ = now_s;
  parser_.feed(bytes);
  if (parser_.malformed_lines() > 0) fail("malformed_sse", "a line is no field of an event stream");
  if (parser_.overflowed()) fail("malformed_sse", "an event is too long");
  return !failed_;
}

void StreamRecorder::on_chunk(const Chunk& chunk, double now_s) {
  now_s_ = now_s;
  take(chunk);
}

void StreamRecorder::refuse(std::string kind, std::string detail, bool because_of_load) {
  fail(std::move(kind), std::move(detail));
  if (because_of_load) record_.outcome = Outcome::kRejected;
}

void StreamRecorder::take(const Chunk& chunk) {
  if (done_ || failed_) return;
  switch (chunk.kind) {
    case Chunk::Kind::kDone:
      done_ = true;
      return;
    case Chunk::Kind::kError:
      return fail("stream_error", chunk.error);
    case Chunk::Kind::kMalformed:
      return fail("malformed_sse", chunk.error);
    case Chunk::Kind::kChunk:
      break;
  }
  if (chunk.has_text) record_.text_times_s.push_back(now_s_);
  if (chunk.has_text || !chunk.finish_reason.empty()) record_.last_choice_s = now_s_;
  if (!chunk.finish_reason.empty()) record_.finish_reason = chunk.finish_reason;
  if (chunk.token_ids) record_.streamed_token_ids = record_.streamed_token_ids.value_or(0) + *chunk.token_ids;
  if (chunk.usage) {  // the last one counts: servers may send running totals with every chunk
    record_.usage_prompt_tokens = chunk.usage->prompt_tokens;
    record_.usage_output_tokens = chunk.usage->completion_tokens;
    record_.cached_tokens = chunk.usage->cached_tokens;
  }
  if (chunk.certificate) record_.certificate = chunk.certificate;
}

void StreamRecorder::fail(std::string kind, std::string detail) {
  if (failed_) return;
  failed_ = true;
  record_.outcome = Outcome::kFailed;
  record_.kind = std::move(kind);
  record_.detail = std::move(detail);
}

RequestRecord StreamRecorder::finish(const TransferEnd& end, double now_s) {
  if (streaming_ && end.error == TransferError::kNone && !done_) parser_.finish();
  record_.end_s = now_s;
  record_.anomalies.resent = end.resent;
  judge(end);
  record_.text_times_s.shrink_to_fit();
  return std::move(record_);
}

void StreamRecorder::judge(const TransferEnd& end) {
  const int status = record_.http_status;
  if (end.error == TransferError::kTimeout && !done_) {
    record_.outcome = Outcome::kTimedOut;
    record_.kind = "timeout";
  } else if (status != 0 && status != 200) {
    fail("http_" + std::to_string(status), error_body_);
    if (status == 429 || status == 503) record_.outcome = Outcome::kRejected;
  } else if (failed_) {
    if (record_.kind == "wrong_content_type") record_.detail += ": " + error_body_;
  } else if (done_) {
    complete();
  } else if (end.error == TransferError::kNone && !record_.finish_reason.empty() && !parser_.has_partial_line()) {
    record_.anomalies.missing_done = true;
    complete();
  } else {
    fail(kind_of(end.error), end.detail);
  }
}

void StreamRecorder::complete() {
  RequestRecord& r = record_;
  r.outcome = Outcome::kCompleted;
  r.kind = "completed";
  const int64_t chunks = static_cast<int64_t>(r.text_times_s.size());
  const int64_t tokens = r.output_tokens();
  r.anomalies.missing_usage = !r.usage_output_tokens.has_value();
  r.anomalies.empty_output = chunks == 0;
  r.anomalies.token_mismatch =
      r.usage_output_tokens && (chunks > tokens || r.streamed_token_ids.value_or(tokens) != tokens);
  r.anomalies.wrong_length = r.requested_output_tokens > 0 && tokens != r.requested_output_tokens;
  if (chunks == 0 && r.finish_reason.empty()) r.last_choice_s = r.end_s;
}

}  // namespace assay::sweep
