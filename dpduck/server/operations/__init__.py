"""Operations: figures that the owner watches while a server runs. Nothing here is for clients."""
