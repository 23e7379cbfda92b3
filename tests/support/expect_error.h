// Asserts that bad input is refused with an Error that says what a user needs to know.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "base/error.h"

namespace moeflux::test {

template <class Body>
void expect_error(Errc code, std::initializer_list<std::string_view> parts, Body body) {
  try {
    body();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), code) << message;
    for (const std::string_view part : parts) {
      EXPECT_NE(message.find(part), std::string::npos)
          << "\"" << part << "\" is not in: " << message;
    }
    return;
  }
  ADD_FAILURE() << "no error; expected one with \"" << (parts.size() > 0 ? *parts.begin() : "")
                << "\"";
}

}  // namespace moeflux::test
