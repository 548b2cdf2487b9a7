// The one place where the bodies of Asio and Beast are compiled (BOOST_*_SEPARATE_COMPILATION everywhere else).
#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
#include <boost/beast/src.hpp>
