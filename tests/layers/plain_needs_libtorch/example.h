#include "mantissa/base/error.h"
