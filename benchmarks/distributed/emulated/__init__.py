"""The study's cluster, emulated: devices sleep, links are limited, and all else is the software itself."""
