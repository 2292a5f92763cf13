"""The chain from a plan of statements to a folder for the public: `dpduck release`."""
