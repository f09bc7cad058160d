// Captures the texts of errors.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>

namespace carole {

// Returns the text of the E that f() throws. Fails the test if f() throws nothing or another type.
template <typename E, typename F>
std::string TextOf(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another type was thrown: " << error.what();
    return "";
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace carole
