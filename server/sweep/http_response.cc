#include "server/sweep/http_response.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/optional.hpp>

namespace assay::sweep {
namespace {

namespace http = boost::beast::http;
using Error = boost::beast::error_code;
using View = boost::beast::string_view;

constexpr uint32_t kHeaderLimitBytes = 256u << 10;

std::string_view to_std(View view) {
  return {view.data(), view.size()};
}

// Beast's protocol machine with our handlers at its outputs.
class Parser final : public http::basic_parser<false> {
 public:
  explicit Parser(HttpResponseParser::Handlers handlers) : handlers_(std::move(handlers)) {
    eager(true);
    header_limit(kHeaderLimitBytes);
    body_limit(boost::none);
  }
  bool stopped = false;

 private:
  void on_request_impl(http::verb, View, View, int, Error&) override {}
  void on_response_impl(int status, View, int, Error&) override { status_ = status; }
  void on_field_impl(http::field name, View, View value, Error&) override {
    if (name == http::field::content_type) content_type_ = to_std(value);
  }
  void on_header_impl(Error& error) override { stop_unless(handlers_.on_header(status_, content_type_), error); }
  void on_body_init_impl(const boost::optional<std::uint64_t>&, Error&) override {}
  std::size_t on_body_impl(View body, Error& error) override {
    stop_unless(handlers_.on_body(to_std(body)), error);
    return body.size();
  }
  void on_chunk_header_impl(std::uint64_t, View, Error&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, View body, Error& error) override { return on_body_impl(body, error); }
  void on_finish_impl(Error&) override {}

  void stop_unless(bool go_on, Error& error) {
    if (go_on) return;
    stopped = true;
    error = http::error::end_of_stream;
  }

  HttpResponseParser::Handlers handlers_;
  int status_ = 0;
  std::string content_type_;
};

}  // namespace

struct HttpResponseParser::Impl {
  explicit Impl(Handlers handlers) : parser(std::move(handlers)) {}

  void put(std::string_view bytes) {
    while (!bytes.empty() && !parser.is_done()) {
      Error error;
      const size_t used = parser.put(boost::asio::const_buffer(bytes.data(), bytes.size()), error);
      bytes.remove_prefix(used);
      if (error == http::error::need_more) break;
      if (error) return fail(error);
      if (used == 0) break;
    }
    rest.assign(bytes);
    if (parser.is_done() && !rest.empty()) reason = "bytes after the end of the response";
  }

  void fail(const Error& error) {
    if (!parser.stopped) reason = error.message();
  }

  Parser parser;
  std::string rest;  // bytes the machine could not use yet: an unfinished header or chunk header
  std::string reason;
  bool got_anything = false;
};

HttpResponseParser::HttpResponseParser(Handlers handlers) : impl_(std::make_unique<Impl>(std::move(handlers))) {}
HttpResponseParser::~HttpResponseParser() = default;

void HttpResponseParser::feed(std::string_view bytes) {
  if (failed() || stopped() || bytes.empty()) return;
  impl_->got_anything = true;
  if (impl_->rest.empty()) return impl_->put(bytes);
  const std::string joined = std::move(impl_->rest).append(bytes);
  impl_->rest.clear();
  impl_->put(joined);
}

void HttpResponseParser::feed_end_of_stream() {
  if (failed() || stopped() || done()) return;
  Error error;
  if (impl_->got_anything) impl_->parser.put_eof(error);
  if (error && error != http::error::partial_message) impl_->fail(error);
}

bool HttpResponseParser::got_anything() const {
  return impl_->got_anything;
}
bool HttpResponseParser::done() const {
  return impl_->parser.is_done() && !failed();
}
bool HttpResponseParser::stopped() const {
  return impl_->parser.stopped;
}
bool HttpResponseParser::failed() const {
  return !impl_->reason.empty();
}
const std::string& HttpResponseParser::reason() const {
  return impl_->reason;
}
bool HttpResponseParser::keep_alive() const {
  return done() && impl_->parser.keep_alive();
}

}  // namespace assay::sweep
