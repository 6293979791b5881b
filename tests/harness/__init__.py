"""What tests share: a gateway made of twins, a real socket under it, and a raw client."""
