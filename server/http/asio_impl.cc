// The one translation unit that holds the bodies of Asio and Beast.
#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
#include <boost/assert.hpp>
#include <boost/beast/src.hpp>

#include <stdexcept>
#include <string>

namespace boost {

// In our builds assertions are on, and what some of them say of a message is up to whoever sent it.
void assertion_failed(const char* expression, const char* function, const char*, long) {
  throw std::logic_error(std::string(expression) + " does not hold in " + function);
}

void assertion_failed_msg(const char* expression, const char* message, const char* function, const char*, long) {
  throw std::logic_error(std::string(expression) + " does not hold in " + function + ": " + message);
}

}  // namespace boost
