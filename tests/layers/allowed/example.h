#include "mantissa/base/error.h"
#include "mantissa/numerics/format.h"
