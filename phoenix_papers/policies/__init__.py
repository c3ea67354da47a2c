"""Every order with every order of victims, on the same windows of four logs."""
