"""Parts that the stores on Azure's storage accounts share: access, options, requests, errors."""
