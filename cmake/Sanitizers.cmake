# MANTISSA_SANITIZE: "" or "address,undefined" or "thread".
set(MANTISSA_SANITIZE "" CACHE STRING "sanitizers: empty, address,undefined or thread")
if(MANTISSA_SANITIZE)
  if(NOT MANTISSA_SANITIZE MATCHES "^(address,undefined|thread)$")
    message(FATAL_ERROR "MANTISSA_SANITIZE=${MANTISSA_SANITIZE}; valid: address,undefined or thread")
  endif()
  target_compile_options(mantissa-flags INTERFACE
    -fsanitize=${MANTISSA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  if(MANTISSA_SANITIZE STREQUAL "thread")
    # A header of LibTorch's has a memory fence, which ThreadSanitizer does not understand.
    target_compile_options(mantissa-flags INTERFACE -Wno-tsan)
  endif()
  target_link_options(mantissa-flags INTERFACE -fsanitize=${MANTISSA_SANITIZE})
endif()
