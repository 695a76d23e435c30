#include <mantissa/tensor/dtype.h>
#include "mantissa/base/error.h"
