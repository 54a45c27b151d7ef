/**
 * Tells the operator what to do if the API's certificate is not trusted; undefined for any other
 * failure. Source of the codes: OpenSSL's verification errors, as Node reports them.
 */
export function explainDistrust(error: unknown): string | undefined {
  for (let at = error; at instanceof Error; at = at.cause) {
    const words = wordsOf((at as NodeJS.ErrnoException).code);
    if (words !== undefined) return words;
  }
  return undefined;
}

function wordsOf(code = ""): string | undefined {
  switch (code) {
    case "ERR_TLS_CERT_ALTNAME_INVALID":
      return "its certificate is for another name: api_url must name the API as its certificate does";
    case "CERT_HAS_EXPIRED":
      return "its certificate has expired: renew it there, unless this host's clock is wrong";
    case "CERT_NOT_YET_VALID":
      return "its certificate is not valid yet: set this host's clock";
    case "DEPTH_ZERO_SELF_SIGNED_CERT":
    case "SELF_SIGNED_CERT_IN_CHAIN":
    case "UNABLE_TO_GET_ISSUER_CERT":
    case "UNABLE_TO_GET_ISSUER_CERT_LOCALLY":
    case "UNABLE_TO_VERIFY_LEAF_SIGNATURE":
    case "CERT_SIGNATURE_FAILURE":
      return "its certificate is from an authority that this host does not trust: api_ca_file must hold that authority's certificate";
    case "UND_ERR_PRX_TLS":
      return "the certificate of the proxy in HTTPS_PROXY is for another name";
    default:
      return undefined;
  }
}
