(** Subtractive dither: the moment bounds (4.1, 4.2), the tail of finite independent sums, and the failure budget of a
    request with one periodic table per layer (2.7, 4.4).

    Probability is over finite spaces, which is all a table of integers needs: a distribution is a list of weighted
    outcomes, an event a boolean function. *)

From Coq Require Import Reals List Lra Lia Psatz ZArith.
From Coquelicot Require Import Coquelicot.
From Assay Require Import Sums Softmax.
Import ListNotations.
Open Scope R_scope.

(** * Hyperbolic functions *)

(** A function with a nonnegative derivative on [0, x] does not fall below its value at 0. *)
Lemma grows_from_0 (f df : R -> R) x :
  0 <= x -> (forall y, is_derive f y (df y)) -> (forall y, 0 <= y -> 0 <= df y) -> f 0 <= f x.
Proof.
  intros Hx Hd Hp.
  destruct (MVT_gen f 0 x df) as (c & Hc & E).
  - intros y _. apply Hd.
  - intros y _. apply continuity_pt_filterlim. apply (ex_derive_continuous (V := R_NormedModule)). exists (df y). apply Hd.
  - rewrite Rmin_left, Rmax_right in Hc by lra. specialize (Hp c (proj1 Hc)).
    assert (0 <= df c * (x - 0)) by (apply Rmult_le_pos; lra). lra.
Qed.

Lemma sinh_nonneg x : 0 <= x -> 0 <= sinh x.
Proof.
  intros H. unfold sinh. assert (exp (- x) <= exp x); [|lra].
  destruct H as [H|<-]; [left; apply exp_increasing; lra|rewrite Ropp_0; lra].
Qed.

Lemma sinh_le_cosh x : 0 <= x -> sinh x <= x * cosh x.
Proof.
  intros Hx.
  assert (K := grows_from_0 (fun y => y * ((exp y + exp (- y)) / 2) - (exp y - exp (- y)) / 2)
    (fun y => y * ((exp y - exp (- y)) / 2)) x Hx).
  cbv beta in K. unfold sinh, cosh. rewrite Ropp_0, exp_0 in K.
  assert (0 * ((1 + 1) / 2) - (1 - 1) / 2 <= x * ((exp x + exp (- x)) / 2) - (exp x - exp (- x)) / 2); [|lra].
  apply K.
  - intros y. auto_derive; [trivial|]. field.
  - intros y Hy. apply Rmult_le_pos; [assumption|]. now apply sinh_nonneg.
Qed.

Lemma cosh_le_exp_pos x : 0 <= x -> cosh x <= exp (x^2 / 2).
Proof.
  intros Hx.
  assert (K := grows_from_0 (fun y => - ((exp y + exp (- y)) / 2 * exp (- (y^2 / 2))))
    (fun y => (y * ((exp y + exp (- y)) / 2) - (exp y - exp (- y)) / 2) * exp (- (y^2 / 2))) x Hx).
  cbv beta in K.
  assert (H : - ((exp 0 + exp (- 0)) / 2 * exp (- (0 ^ 2 / 2))) <= - ((exp x + exp (- x)) / 2 * exp (- (x ^ 2 / 2)))).
  { apply K.
    - intros y. auto_derive; [trivial|].
      replace (- (y * (y * 1) * / 2)) with (- (y^2 / 2)) by (simpl; field). field.
    - intros y Hy. apply Rmult_le_pos; [|left; apply exp_pos]. pose proof (sinh_le_cosh y Hy) as S.
      unfold sinh, cosh in S. lra. }
  replace (- (0 ^ 2 / 2)) with 0 in H by field. rewrite Ropp_0, exp_0 in H.
  rewrite (exp_Ropp (x^2 / 2)) in H. unfold cosh. pose proof (exp_pos (x^2 / 2)) as P.
  apply Rmult_le_reg_r with (/ exp (x^2 / 2)); [now apply Rinv_0_lt_compat|]. rewrite Rinv_r by lra. lra.
Qed.

Theorem cosh_le_exp x : cosh x <= exp (x^2 / 2).
Proof.
  destruct (Rle_lt_dec 0 x) as [H|H]; [now apply cosh_le_exp_pos|].
  replace (cosh x) with (cosh (- x)) by (unfold cosh; rewrite Ropp_involutive; field).
  replace (x^2 / 2) with ((- x)^2 / 2) by field. apply cosh_le_exp_pos. lra.
Qed.

Lemma sinh_double x : sinh (2 * x) = 2 * sinh x * cosh x.
Proof.
  unfold sinh, cosh. replace (2 * x) with (x + x) by ring. replace (- (x + x)) with (- x + - x) by ring.
  rewrite !exp_plus. field.
Qed.

(** Halving n times: all but a vanishing part of the exponent is the sum of a geometric series. *)
Lemma sinh_halving n x : 0 <= x -> sinh x <= x * exp (x^2 / 6 + x^2 / 3 / 4^n).
Proof.
  revert x. induction n as [|n IH]; intros x Hx.
  - simpl. apply Rle_trans with (1 := sinh_le_cosh x Hx). apply Rmult_le_compat_l; [assumption|].
    apply Rle_trans with (1 := cosh_le_exp x). apply Req_le. f_equal. field.
  - replace x with (2 * (x / 2)) at 1 by field. rewrite sinh_double.
    assert (Hx2 : 0 <= x / 2) by lra. specialize (IH (x / 2) Hx2).
    apply Rle_trans with (2 * (x / 2 * exp ((x / 2)^2 / 6 + (x / 2)^2 / 3 / 4^n)) * exp ((x / 2)^2 / 2)).
    + apply Rmult_le_compat.
      * apply Rmult_le_pos; [lra|now apply sinh_nonneg].
      * unfold cosh. pose proof (exp_pos (x / 2)). pose proof (exp_pos (- (x / 2))). lra.
      * lra.
      * apply cosh_le_exp.
    + apply Req_le. replace (2 * (x / 2 * exp ((x / 2)^2 / 6 + (x / 2)^2 / 3 / 4^n)) * exp ((x / 2)^2 / 2))
        with (x * (exp ((x / 2)^2 / 6 + (x / 2)^2 / 3 / 4^n) * exp ((x / 2)^2 / 2))) by field.
      rewrite <- exp_plus. f_equal. f_equal. simpl. field. apply pow_nonzero. lra.
Qed.

(** sinh x <= x exp(x^2/6). *)
Theorem sinh_le x : 0 <= x -> sinh x <= x * exp (x^2 / 6).
Proof.
  intros Hx. destruct (Rle_lt_dec (sinh x) (x * exp (x^2 / 6))) as [|L]; [assumption|exfalso].
  assert (Hx0 : 0 < x).
  { destruct Hx as [|<-]; [assumption|]. unfold sinh in L. rewrite Ropp_0, exp_0 in L. lra. }
  pose proof (exp_pos (x^2 / 6)) as Pe.
  set (r := sinh x / (x * exp (x^2 / 6))).
  assert (Pxe : 0 < x * exp (x^2 / 6)) by (apply Rmult_lt_0_compat; assumption).
  assert (Hr : 1 < r).
  { unfold r. apply Rmult_lt_reg_r with (x * exp (x^2 / 6)); [assumption|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l; lra. }
  (* every halving bounds r by exp (x^2 / (3 4^n)) *)
  assert (Hn : forall n, r <= exp (x^2 / 3 / 4^n)).
  { intros n. apply Rmult_le_reg_r with (x * exp (x^2 / 6)); [assumption|]. unfold r.
    replace (sinh x / (x * exp (x^2 / 6)) * (x * exp (x^2 / 6))) with (sinh x) by (field; lra).
    apply Rle_trans with (1 := sinh_halving n x Hx). rewrite exp_plus. apply Req_le. ring. }
  assert (Hl : 0 < ln r) by (rewrite <- ln_1; apply ln_increasing; lra).
  destruct (Pow_x_infinity 4 ltac:(rewrite Rabs_pos_eq; lra) (x^2 / 3 / ln r + 1)) as [n Kn].
  specialize (Kn n (le_n n)). rewrite Rabs_pos_eq in Kn by (apply pow_le; lra).
  assert (P4 : 0 < 4^n) by (apply pow_lt; lra).
  specialize (Hn n). apply ln_le in Hn; [|lra]. rewrite ln_exp in Hn.
  assert (ln r * 4^n <= x^2 / 3).
  { apply Rmult_le_compat_r with (r := 4^n) in Hn; [|lra].
    replace (x^2 / 3 / 4^n * 4^n) with (x^2 / 3) in Hn by (field; lra). exact Hn. }
  assert (ln r * (x^2 / 3 / ln r + 1) <= ln r * 4^n) by (apply Rmult_le_compat_l; lra).
  replace (ln r * (x^2 / 3 / ln r + 1)) with (x^2 / 3 + ln r) in H0 by (field; lra). lra.
Qed.

(** 4.1: the moments of a residual uniform on [-s/2, s/2]: the proxy is s^2/12. *)
Theorem uniform_mgf s lam : 0 < s ->
  RInt (fun r => exp (lam * r)) (- (s / 2)) (s / 2) / s <= exp (lam^2 * (s^2 / 12) / 2).
Proof.
  intros Hs. destruct (Req_dec lam 0) as [->|Hl].
  - assert (E : RInt (fun r => exp (0 * r)) (- (s / 2)) (s / 2) = s).
    { rewrite (RInt_ext _ (fun _ => 1)) by (intros; rewrite Rmult_0_l; apply exp_0).
      rewrite RInt_const. unfold scal; simpl; unfold mult; simpl. field. }
    rewrite E. replace (0^2 * (s^2 / 12) / 2) with 0 by field. rewrite exp_0. apply Req_le. field. lra.
  - assert (E : RInt (fun r => exp (lam * r)) (- (s / 2)) (s / 2)
      = exp (lam * (s / 2)) / lam - exp (lam * (- (s / 2))) / lam).
    { apply is_RInt_unique.
      apply (is_RInt_derive (fun r => exp (lam * r) / lam) (fun r => exp (lam * r))).
      - intros r _. auto_derive; [trivial|]. field. assumption.
      - intros r _. apply (ex_derive_continuous (V := R_NormedModule)). auto_derive. trivial. }
    rewrite E.
    set (y := Rabs lam * s / 2).
    assert (Hy : 0 < y) by (unfold y; pose proof (Rabs_pos_lt lam Hl); nra).
    assert (E2 : (exp (lam * (s / 2)) / lam - exp (lam * - (s / 2)) / lam) / s = sinh y / y).
    { unfold y, sinh, Rabs. destruct (Rcase_abs lam) as [N|N].
      - replace (- lam * s / 2) with (lam * - (s / 2)) by field.
        replace (- (lam * - (s / 2))) with (lam * (s / 2)) by field. field. lra.
      - replace (lam * s / 2) with (lam * (s / 2)) by field.
        replace (- (lam * (s / 2))) with (lam * - (s / 2)) by field. field. lra. }
    rewrite E2. apply Rmult_le_reg_r with y; [assumption|]. unfold Rdiv at 1. rewrite Rmult_assoc, Rinv_l by lra.
    rewrite Rmult_1_r, Rmult_comm. replace (lam^2 * (s^2 / 12) / 2) with (y^2 / 6); [apply sinh_le; lra|].
    unfold y. replace ((Rabs lam * s / 2)^2) with ((Rabs lam * Rabs lam) * (s^2 / 4)) by field.
    rewrite <- Rabs_mult, (Rabs_pos_eq (lam * lam)) by nra. field.
Qed.

(** * The lattice (4.2) *)

Lemma Sum_seq_shift k n (f : nat -> R) : Sum (seq k n) f = Sum (seq 0 n) (fun i => f (k + i)%nat).
Proof.
  revert k f. induction n as [|n IH]; intros k f; simpl; [reflexivity|]. rewrite IH.
  rewrite (IH 1%nat). rewrite Nat.add_0_r. f_equal. apply Sum_ext. intros i _. f_equal. lia.
Qed.

Lemma Sum_seq_S n (f : nat -> R) : Sum (seq 0 (S n)) f = Sum (seq 0 n) f + f n.
Proof. rewrite seq_S, Sum_app. simpl. lra. Qed.

Lemma Sum_seq_rev n (f : nat -> R) : Sum (seq 0 n) (fun i => f (n - 1 - i)%nat) = Sum (seq 0 n) f.
Proof.
  induction n as [|n IH]; [reflexivity|]. rewrite (Sum_seq_S n f), <- IH.
  change (seq 0 (S n)) with (0%nat :: seq 1 n). simpl Sum at 1. rewrite Sum_seq_shift. rewrite Rplus_comm. f_equal.
  - apply Sum_ext. intros i Hi. f_equal. lia.
  - f_equal. lia.
Qed.

Definition pow2 (b : nat) : nat := Nat.pow 2 b.
Definition spacing (b : nat) : R := 1 / INR (pow2 b).

Lemma pow2_pos b : (0 < pow2 b)%nat.
Proof. unfold pow2. apply Nat.neq_0_lt_0, Nat.pow_nonzero. lia. Qed.

Lemma INR_pow2_pos b : 0 < INR (pow2 b).
Proof. apply lt_0_INR, pow2_pos. Qed.

Lemma INR_pow2_S b : INR (pow2 (S b)) = 2 * INR (pow2 b).
Proof. unfold pow2. rewrite Nat.pow_succ_r', mult_INR. reflexivity. Qed.

(** Mean of exp over 2^b centred points of spacing one. *)
Definition lat (b : nat) (mu : R) : R :=
  Sum (seq 0 (pow2 b)) (fun i => exp (mu * (INR i - (INR (pow2 b) - 1) / 2))) / INR (pow2 b).

Lemma lat_double b mu : lat (S b) mu = cosh (mu * INR (pow2 b) / 2) * lat b mu.
Proof.
  unfold lat. pose proof (INR_pow2_pos b) as P. rewrite INR_pow2_S. set (N := INR (pow2 b)) in *.
  assert (EN : pow2 (S b) = (pow2 b + pow2 b)%nat) by (unfold pow2; simpl; lia).
  rewrite EN, seq_app, Sum_app. simpl (0 + pow2 b)%nat. rewrite (Sum_seq_shift (pow2 b)).
  set (f := fun i : nat => exp (mu * (INR i - (N - 1) / 2))).
  rewrite (Sum_ext _ _ (fun i => exp (- (mu * N / 2)) * f i)).
  2: { intros i _. unfold f. rewrite <- exp_plus. f_equal. field. }
  rewrite (Sum_ext _ (fun i => exp (mu * (INR (pow2 b + i) - (2 * N - 1) / 2))) (fun i => exp (mu * N / 2) * f i)).
  2: { intros i _. unfold f. rewrite <- exp_plus. f_equal. rewrite plus_INR. fold N. field. }
  rewrite !Sum_scal. unfold cosh. field. lra.
Qed.

(** The discrete twin: proxy (4^b - 1)/12 in units of the spacing. *)
Theorem lattice_mgf b mu : lat b mu <= exp (mu^2 * ((INR (pow2 b))^2 - 1) / 24).
Proof.
  induction b as [|b IH].
  - unfold lat, pow2. simpl. replace (mu * (0 - (1 - 1) / 2)) with 0 by field.
    replace (mu * (mu * 1) * (1 * (1 * 1) - 1) / 24) with 0 by field. rewrite exp_0. lra.
  - rewrite lat_double, INR_pow2_S. set (N := INR (pow2 b)) in *.
    apply Rle_trans with (exp ((mu * N / 2)^2 / 2) * exp (mu^2 * (N^2 - 1) / 24)).
    + apply Rmult_le_compat; [| |apply cosh_le_exp|exact IH].
      * unfold cosh. pose proof (exp_pos (mu * N / 2)). pose proof (exp_pos (- (mu * N / 2))). lra.
      * unfold lat. apply Rmult_le_pos; [|left; apply Rinv_0_lt_compat, INR_pow2_pos].
        apply Sum_nonneg. intros. left. apply exp_pos.
    + rewrite <- exp_plus. apply Req_le. f_equal. field.
Qed.

(** The dither drawn as an integer, and the residual in units of the step for integers [n] chosen by the write path. *)
Definition xi (b j : nat) : R := INR j * spacing b - 1 / 2.
Definition resid (b : nat) (n : nat -> Z) (z : R) (j : nat) : R := IZR (n j) - (z + xi b j).

(** What the write path must do: round monotonically, to integers at most 1/2 + eps away, and to no more than two of
    them over the whole lattice. *)
Definition write_path (b : nat) (eps : R) (n : nat -> Z) (z : R) : Prop :=
  (forall j, (S j < pow2 b)%nat -> (n j <= n (S j))%Z) /\
  (n (pow2 b - 1)%nat <= n 0%nat + 1)%Z /\
  (forall j, (j < pow2 b)%nat -> Rabs (resid b n z j) <= 1 / 2 + eps).

(** Monotone rounding to nearest in exact arithmetic does. *)
Lemma nearest_write_path b (n : nat -> Z) z :
  (forall j, (S j < pow2 b)%nat -> (n j <= n (S j))%Z) ->
  (forall j, (j < pow2 b)%nat -> Rabs (resid b n z j) <= 1 / 2) -> write_path b 0 n z.
Proof.
  intros Hm Hr. split; [assumption|]. split; [|intros j Hj; rewrite Rplus_0_r; now apply Hr].
  pose proof (pow2_pos b) as P. pose proof (INR_pow2_pos b) as PR.
  pose proof (Hr 0%nat P) as H0. pose proof (Hr (pow2 b - 1)%nat ltac:(lia)) as H1.
  unfold resid, xi in *. apply Rabs_le_between in H0. apply Rabs_le_between in H1.
  simpl INR in H0. rewrite Rmult_0_l in H0.
  assert (K : INR (pow2 b - 1) * spacing b < 1).
  { unfold spacing. apply Rmult_lt_reg_r with (INR (pow2 b)); [assumption|].
    rewrite minus_INR by lia. simpl INR. field_simplify; lra. }
  assert (IZR (n (pow2 b - 1)%nat) < IZR (n 0%nat + 2)) by (rewrite plus_IZR; lra).
  apply lt_IZR in H. lia.
Qed.

(** So the hypothesis can be met, for every key: rounding half down is such a write path. *)
Theorem rounding_write_path b z : write_path b 0 (fun j => up (z + xi b j - 1 / 2)) z.
Proof.
  pose proof (INR_pow2_pos b) as PR.
  apply nearest_write_path.
  - intros j _. destruct (archimed (z + xi b j - 1 / 2)) as [H1 H2]. destruct (archimed (z + xi b (S j) - 1 / 2)) as [H3 H4].
    assert (xi b j <= xi b (S j)).
    { unfold xi. rewrite S_INR. assert (0 < spacing b) by (apply Rdiv_lt_0_compat; lra). lra. }
    assert (K : IZR (up (z + xi b j - 1 / 2) - 1) < IZR (up (z + xi b (S j) - 1 / 2))) by (rewrite minus_IZR; lra).
    apply lt_IZR in K. lia.
  - intros j _. unfold resid. destruct (archimed (z + xi b j - 1 / 2)) as [H1 H2]. apply Rabs_le. lra.
Qed.

(** The jump of a monotone two-valued sequence. *)
Lemma two_valued N (n : nat -> Z) :
  (0 < N)%nat -> (forall j, (S j < N)%nat -> (n j <= n (S j))%Z) -> (n (N - 1)%nat <= n 0%nat + 1)%Z ->
  exists J, (1 <= J <= N)%nat /\ (forall j, (j < J)%nat -> n j = n 0%nat) /\
            (forall j, (J <= j < N)%nat -> n j = (n 0%nat + 1)%Z).
Proof.
  induction N as [|N IH]; intros H0 Hm Hl; [lia|]. destruct N as [|N].
  - exists 1%nat. split; [lia|]. split; intros j Hj; [replace j with 0%nat by lia; reflexivity|lia].
  - replace (S (S N) - 1)%nat with (S N) in Hl by lia.
    assert (Hs := Hm N ltac:(lia)).
    destruct IH as (J & HJ & H1 & H2); [lia|intros; apply Hm; lia|replace (S N - 1)%nat with N by lia; lia|].
    destruct (Nat.eq_dec J (S N)) as [E|E].
    + assert (HN : n N = n 0%nat) by (apply H1; lia).
      destruct (Z.eq_dec (n (S N)) (n 0%nat)) as [Q|Q].
      * exists (S (S N)). split; [lia|]. split; [|intros; lia]. intros j Hj.
        destruct (Nat.eq_dec j (S N)) as [->|]; [assumption|apply H1; lia].
      * exists (S N). split; [lia|]. split; [intros; apply H1; lia|]. intros j Hj.
        replace j with (S N) by lia. lia.
    + exists J. split; [lia|]. split; [assumption|]. intros j Hj.
      destruct (Nat.eq_dec j (S N)) as [->|]; [|apply H2; lia].
      assert (n N = (n 0%nat + 1)%Z) by (apply H2; lia). lia.
Qed.

(** 4.2: given the key, the residual takes 2^b consecutive points of spacing 2^-b, each once; their centre is the bias. *)
Theorem residual_lattice b eps n z :
  write_path b eps n z ->
  exists bias, Rabs bias <= spacing b / 2 + eps /\
  forall f : R -> R, Sum (seq 0 (pow2 b)) (fun j => f (resid b n z j))
    = Sum (seq 0 (pow2 b)) (fun i => f (bias + spacing b * (INR i - (INR (pow2 b) - 1) / 2))).
Proof.
  intros (Hm & Hl & He). pose proof (pow2_pos b) as P. pose proof (INR_pow2_pos b) as PR.
  destruct (two_valued (pow2 b) n P Hm Hl) as (J & HJ & H1 & H2).
  set (N := pow2 b) in *. set (h := spacing b) in *.
  assert (hN : h * INR N = 1) by (unfold h, spacing; fold N; field; lra).
  set (y0 := IZR (n 0%nat) - z + 1 / 2 - INR (J - 1) * h).
  assert (R1 : forall j, (j < J)%nat -> resid b n z j = y0 + INR (J - 1 - j) * h).
  { intros j Hj. unfold resid, xi, y0. fold h. rewrite (H1 j Hj), !minus_INR by lia. ring. }
  assert (R2 : forall j, (J <= j < N)%nat -> resid b n z j = y0 + INR (N - 1 - j + J) * h).
  { intros j Hj. unfold resid, xi, y0. fold h. rewrite (H2 j Hj), plus_IZR.
    rewrite plus_INR, !minus_INR by lia. simpl INR. lra. }
  exists (y0 + h * (INR N - 1) / 2). split.
  - (* the first and the last point are residuals *)
    assert (B0 : Rabs y0 <= 1 / 2 + eps).
    { specialize (He (J - 1)%nat ltac:(lia)). rewrite (R1 (J - 1)%nat ltac:(lia)) in He.
      replace (J - 1 - (J - 1))%nat with 0%nat in He by lia. simpl INR in He. rewrite Rmult_0_l, Rplus_0_r in He. exact He. }
    assert (B1 : Rabs (y0 + h * (INR N - 1)) <= 1 / 2 + eps).
    { destruct (Nat.eq_dec J N) as [E|E].
      - specialize (He 0%nat ltac:(lia)). rewrite (R1 0%nat ltac:(lia)) in He.
        replace (J - 1 - 0)%nat with (N - 1)%nat in He by lia. rewrite minus_INR in He by lia. simpl INR in He.
        replace (h * (INR N - 1)) with ((INR N - 1) * h) by ring. exact He.
      - specialize (He J ltac:(lia)). rewrite (R2 J ltac:(lia)) in He.
        replace (N - 1 - J + J)%nat with (N - 1)%nat in He by lia. rewrite minus_INR in He by lia. simpl INR in He.
        replace (h * (INR N - 1)) with ((INR N - 1) * h) by ring. exact He. }
    apply Rabs_le_between in B0. apply Rabs_le_between in B1. apply Rabs_le. lra.
  - intros f.
    rewrite (Sum_ext (seq 0 N) (fun i => f (y0 + h * (INR N - 1) / 2 + h * (INR i - (INR N - 1) / 2)))
      (fun i => f (y0 + INR i * h))).
    2: { intros i _. f_equal. field. }
    set (g := fun i : nat => f (y0 + INR i * h)).
    replace N with (J + (N - J))%nat at 1 by lia. rewrite seq_app, Sum_app. simpl (0 + J)%nat.
    rewrite (Sum_ext (seq 0 J) _ (fun j => g (J - 1 - j)%nat)).
    2: { intros j Hj. apply in_seq in Hj. unfold g. rewrite R1 by lia. reflexivity. }
    rewrite Sum_seq_rev.
    rewrite (Sum_ext (seq J (N - J)) _ (fun j => g (N - 1 - j + J)%nat)).
    2: { intros j Hj. apply in_seq in Hj. unfold g. rewrite R2 by lia. reflexivity. }
    rewrite (Sum_seq_shift J (N - J)).
    rewrite (Sum_ext (seq 0 (N - J)) _ (fun i => (fun k => g (J + k)%nat) ((N - J) - 1 - i)%nat)).
    2: { intros i Hi. apply in_seq in Hi. simpl. f_equal. lia. }
    rewrite (Sum_seq_rev (N - J) (fun k => g (J + k)%nat)).
    rewrite <- (Sum_seq_shift J), <- Sum_app, <- seq_app. f_equal. f_equal. lia.
Qed.

(** * Finite probability *)

Definition dist (A : Type) := list (R * A).
Definition is_dist {A} (d : dist A) : Prop := weights d fst.
Definition Ex {A} (d : dist A) (f : A -> R) : R := Sum d (fun z => fst z * f (snd z)).
Definition Pr {A} (d : dist A) (e : A -> bool) : R := Ex d (fun a => if e a then 1 else 0).

(** Independent draws. *)
Fixpoint draws {A} (ds : list (dist A)) : dist (list A) :=
  match ds with
  | [] => [(1, [])]
  | d :: ds' => flat_map (fun z => map (fun w => (fst z * fst w, snd z :: snd w)) (draws ds')) d
  end.

(** The uniform distribution on the lattice. *)
Definition lattice (b : nat) : dist nat := map (fun j => (spacing b, j)) (seq 0 (pow2 b)).

Section Probability.
Context {A : Type}.
Implicit Types (d : dist A) (f g : A -> R).

Lemma Ex_ext d f g : (forall a, f a = g a) -> Ex d f = Ex d g.
Proof. intros H. apply Sum_ext. intros z _. now rewrite H. Qed.

Lemma Ex_le_in d f g : is_dist d -> (forall z, In z d -> f (snd z) <= g (snd z)) -> Ex d f <= Ex d g.
Proof. intros [H _] Hf. apply Sum_le. intros z Hz. apply Rmult_le_compat_l; [now apply H|now apply Hf]. Qed.

Lemma Ex_le d f g : is_dist d -> (forall a, f a <= g a) -> Ex d f <= Ex d g.
Proof. intros Hd Hf. apply Ex_le_in; auto. Qed.

Lemma Ex_scal d k f : Ex d (fun a => k * f a) = k * Ex d f.
Proof. unfold Ex. rewrite <- Sum_scal. apply Sum_ext. intros; ring. Qed.

Lemma Ex_scal_r d k f : Ex d (fun a => f a * k) = Ex d f * k.
Proof. unfold Ex. rewrite <- Sum_scal_r. apply Sum_ext. intros; ring. Qed.

Lemma Ex_plus d f g : Ex d (fun a => f a + g a) = Ex d f + Ex d g.
Proof. unfold Ex. rewrite <- Sum_plus. apply Sum_ext. intros; ring. Qed.

Lemma Ex_const d k : is_dist d -> Ex d (fun _ => k) = k.
Proof. intros [_ H]. unfold Ex. rewrite Sum_scal_r. rewrite H. ring. Qed.

Lemma Ex_nonneg d f : is_dist d -> (forall a, 0 <= f a) -> 0 <= Ex d f.
Proof. intros Hd H. rewrite <- (Ex_const d 0 Hd). now apply Ex_le. Qed.

(** The union bound: no independence anywhere. *)
Theorem union_bound {K : Type} d (ks : list K) (e : K -> A -> bool) :
  is_dist d -> Pr d (fun a => existsb (fun k => e k a) ks) <= Sum ks (fun k => Pr d (e k)).
Proof.
  intros Hd. induction ks as [|k ks IH]; simpl.
  - unfold Pr. rewrite Ex_const by assumption. lra.
  - apply Rle_trans with (Pr d (e k) + Pr d (fun a => existsb (fun k => e k a) ks)); [|lra].
    unfold Pr. rewrite <- Ex_plus. apply Ex_le; [assumption|]. intros a.
    destruct (e k a), (existsb (fun k => e k a) ks); simpl; lra.
Qed.

Lemma Ex_draws_cons d ds (f : list A -> R) : Ex (draws (d :: ds)) f = Ex d (fun a => Ex (draws ds) (fun l => f (a :: l))).
Proof.
  induction d as [|z d IH]; [reflexivity|].
  unfold Ex in *. simpl draws in *. simpl flat_map. rewrite Sum_app. simpl Sum at 3.
  f_equal; [|exact IH]. rewrite Sum_map, <- Sum_scal. apply Sum_ext. intros w _. simpl. ring.
Qed.

Lemma Ex_draws_scal (ds : list (dist A)) k (f : list A -> R) : Ex (draws ds) (fun l => k * f l) = k * Ex (draws ds) f.
Proof. unfold Ex. rewrite <- Sum_scal. apply Sum_ext. intros; ring. Qed.

Lemma Ex_draws_ext (ds : list (dist A)) (f g : list A -> R) : (forall l, f l = g l) -> Ex (draws ds) f = Ex (draws ds) g.
Proof. intros H. apply Sum_ext. intros z _. now rewrite H. Qed.

Lemma Ex_draws_const (ds : list (dist A)) k : is_dist (draws ds) -> Ex (draws ds) (fun _ => k) = k.
Proof. intros [_ H]. unfold Ex. rewrite Sum_scal_r, H. ring. Qed.

Lemma draws_dist (ds : list (dist A)) : (forall d, In d ds -> is_dist d) -> is_dist (draws ds).
Proof.
  induction ds as [|d ds IH]; intros H.
  - split; simpl; [intros t [<-|[]]; simpl; lra|lra].
  - specialize (IH (fun d Hd => H d (or_intror Hd))). pose proof (H d (or_introl eq_refl)) as Hd. split.
    + intros t Ht. simpl in Ht. apply in_flat_map in Ht. destruct Ht as (z & Hz & Ht). apply in_map_iff in Ht.
      destruct Ht as (w & <- & Hw). simpl. apply Rmult_le_pos; [now apply Hd|now apply IH].
    + assert (E := Ex_draws_cons d ds (fun _ => 1)). rewrite (Ex_ext d _ (fun _ => 1)) in E.
      2: { intros a. now apply Ex_draws_const. }
      rewrite Ex_const in E by assumption. unfold Ex in E. rewrite <- E. apply Sum_ext. intros; ring.
Qed.

(** * Sub-Gaussian variables *)

Definition subG d (X : A -> R) (v : R) : Prop := forall lam, Ex d (fun a => exp (lam * X a)) <= exp (lam^2 * v / 2).

Lemma subG_opp d X v : subG d X v -> subG d (fun a => - X a) v.
Proof.
  intros H lam. specialize (H (- lam)). replace ((- lam)^2) with (lam^2) in H by ring.
  rewrite (Ex_ext d _ (fun a => exp (- lam * X a))); [exact H|]. intros a. f_equal. ring.
Qed.

Lemma subG_weaken d X v v' : v <= v' -> subG d X v -> subG d X v'.
Proof.
  intros Hv H lam. apply Rle_trans with (1 := H lam). pose proof (pow2_ge_0 lam).
  destruct (Req_dec (lam^2 * v / 2) (lam^2 * v' / 2)) as [->|]; [lra|]. left. apply exp_increasing. nra.
Qed.

(** Chernoff. *)
Lemma subG_tail_one d X v t :
  is_dist d -> subG d X v -> 0 < v -> 0 <= t -> Pr d (fun a => if Rlt_dec t (X a) then true else false) <= exp (- (t^2 / (2 * v))).
Proof.
  intros Hd H Hv Ht. set (lam := t / v).
  assert (Hlam : 0 <= lam) by (apply Rmult_le_pos; [assumption|left; now apply Rinv_0_lt_compat]).
  apply Rle_trans with (Ex d (fun a => exp (- (lam * t)) * exp (lam * X a))).
  - apply Ex_le; [assumption|]. intros a. rewrite <- exp_plus. destruct (Rlt_dec t (X a)); [|left; apply exp_pos].
    apply Rle_trans with (1 + (- (lam * t) + lam * X a)); [nra|apply exp_ineq1_le].
  - rewrite Ex_scal. apply Rle_trans with (exp (- (lam * t)) * exp (lam^2 * v / 2)).
    + apply Rmult_le_compat_l; [left; apply exp_pos|apply H].
    + rewrite <- exp_plus. apply Req_le. f_equal. unfold lam. field. lra.
Qed.

(** With proxy zero the variable vanishes wherever there is weight. *)
Lemma subG_zero d X : is_dist d -> subG d X 0 -> forall z, In z d -> 0 < fst z -> X (snd z) <= 0.
Proof.
  intros [Hn _] H z Hz Hw. destruct (Rle_lt_dec (X (snd z)) 0) as [|L]; [assumption|exfalso].
  specialize (H (/ (fst z * X (snd z)))). set (lam := / (fst z * X (snd z))) in *.
  replace (lam^2 * 0 / 2) with 0 in H by field. rewrite exp_0 in H.
  assert (K : fst z * exp (lam * X (snd z)) <= Ex d (fun a => exp (lam * X a))).
  { unfold Ex. apply (Sum_ge_one d (fun z => fst z * exp (lam * X (snd z)))); [|assumption].
    intros s Hs. apply Rmult_le_pos; [now apply Hn|left; apply exp_pos]. }
  pose proof (exp_ineq1_le (lam * X (snd z))) as K2.
  assert (E : fst z * (lam * X (snd z)) = 1) by (unfold lam; field; lra).
  assert (fst z * (1 + lam * X (snd z)) <= fst z * exp (lam * X (snd z))) by (apply Rmult_le_compat_l; lra).
  lra.
Qed.

Definition exceeds (X : A -> R) (r : R) (a : A) : bool := if Rlt_dec r (Rabs (X a)) then true else false.

(** Two tails, in units of the standard deviation. *)
Theorem subG_tail d X v kappa :
  is_dist d -> subG d X v -> 0 <= v -> 0 <= kappa ->
  Pr d (exceeds X (kappa * sqrt v)) <= 2 * exp (- (kappa^2 / 2)).
Proof.
  intros Hd H Hv Hk. destruct Hv as [Hv|<-].
  - set (t := kappa * sqrt v). assert (Ht : 0 <= t) by (apply Rmult_le_pos; [assumption|apply sqrt_pos]).
    assert (Et : t^2 / (2 * v) = kappa^2 / 2).
    { unfold t. replace ((kappa * sqrt v)^2) with (kappa^2 * (sqrt v * sqrt v)) by ring. rewrite sqrt_sqrt by lra. field. lra. }
    pose proof (subG_tail_one d X v t Hd H Hv Ht) as T1.
    pose proof (subG_tail_one d (fun a => - X a) v t Hd (subG_opp d X v H) Hv Ht) as T2.
    rewrite Et in T1, T2.
    apply Rle_trans with (Pr d (fun a => if Rlt_dec t (X a) then true else false)
      + Pr d (fun a => if Rlt_dec t (- X a) then true else false)); [|lra].
    unfold Pr. rewrite <- Ex_plus. apply Ex_le; [assumption|]. intros a. unfold exceeds.
    destruct (Rlt_dec t (Rabs (X a))) as [L|]; destruct (Rlt_dec t (X a)), (Rlt_dec t (- X a)); try lra.
    exfalso. revert L. unfold Rabs. destruct (Rcase_abs (X a)); lra.
  - rewrite sqrt_0, Rmult_0_r. apply Rle_trans with 0; [|pose proof (exp_pos (- (kappa^2 / 2))); lra].
    apply Req_le. unfold Pr, Ex. apply Sum_0. intros z Hz.
    destruct (Req_dec (fst z) 0) as [E|E]; [rewrite E; ring|].
    assert (Hz0 : 0 < fst z) by (destruct Hd as [Hn _]; specialize (Hn z Hz); lra).
    pose proof (subG_zero d X Hd H z Hz Hz0). pose proof (subG_zero d _ Hd (subG_opp d X 0 H) z Hz Hz0) as H2. cbv beta in H2.
    unfold exceeds. destruct (Rlt_dec 0 (Rabs (X (snd z)))) as [L|]; [|ring].
    exfalso. replace (X (snd z)) with 0 in L by lra. rewrite Rabs_R0 in L. lra.
Qed.

(** Sums over independent draws; the i-th term looks at the i-th draw only. *)
Fixpoint tot (X : nat -> A -> R) (i : nat) (l : list A) : R :=
  match l with
  | [] => 0
  | a :: l' => X i a + tot X (S i) l'
  end.

Theorem subG_sum (X : nat -> A -> R) (v : nat -> R) (ds : list (dist A)) (i : nat) :
  (forall d, In d ds -> is_dist d) ->
  (forall j d, nth_error ds j = Some d -> subG d (X (i + j)%nat) (v (i + j)%nat)) ->
  forall lam, Ex (draws ds) (fun l => exp (lam * tot X i l)) <= exp (lam^2 * Sum (seq i (length ds)) v / 2).
Proof.
  revert i. induction ds as [|d ds IH]; intros i Hd H lam.
  - unfold Ex. simpl. rewrite Rmult_0_r, exp_0. replace (lam * (lam * 1) * 0 / 2) with 0 by field. rewrite exp_0. lra.
  - assert (Hds : is_dist (draws ds)) by (apply draws_dist; intros; apply Hd; now right).
    rewrite Ex_draws_cons.
    rewrite (Ex_ext d _ (fun a => exp (lam * X i a) * Ex (draws ds) (fun l => exp (lam * tot X (S i) l)))).
    2: { intros a. rewrite <- Ex_draws_scal. apply Ex_draws_ext. intros l. simpl.
         rewrite Rmult_plus_distr_l, exp_plus. reflexivity. }
    rewrite Ex_scal_r.
    replace (lam^2 * Sum (seq i (length (d :: ds))) v / 2)
      with (lam^2 * v i / 2 + lam^2 * Sum (seq (S i) (length ds)) v / 2) by (simpl; field).
    rewrite exp_plus. apply Rmult_le_compat.
    + apply Ex_nonneg; [apply Hd; now left|]. intros; left; apply exp_pos.
    + apply Sum_nonneg. intros z Hz. apply Rmult_le_pos; [now apply Hds|left; apply exp_pos].
    + specialize (H 0%nat d eq_refl). rewrite Nat.add_0_r in H. apply H.
    + apply IH; [intros; apply Hd; now right|]. intros j d' Hj. replace (S i + j)%nat with (i + S j)%nat by lia.
      apply H. exact Hj.
Qed.

Lemma draws_length (ds : list (dist A)) z : In z (draws ds) -> length (snd z) = length ds.
Proof.
  revert z. induction ds as [|d ds IH]; intros z H; simpl in H; [destruct H as [<-|[]]; reflexivity|].
  apply in_flat_map in H. destruct H as (y & _ & H). apply in_map_iff in H. destruct H as (w & <- & Hw).
  simpl. now rewrite IH.
Qed.

Lemma tot_minus (X : nat -> A -> R) (m : nat -> R) (l : list A) i :
  tot (fun k a => X k a - m k) i l = tot X i l - Sum (seq i (length l)) m.
Proof. revert i. induction l as [|a l IH]; intros i; simpl; [lra|]. rewrite IH. lra. Qed.

Lemma tot_ext (X Y : nat -> A -> R) (l : list A) i : (forall k a, X k a = Y k a) -> tot X i l = tot Y i l.
Proof. intros H. revert i. induction l as [|a l IH]; intros i; simpl; [reflexivity|]. now rewrite H, IH. Qed.

Lemma tot_seq (X : nat -> A -> R) (l : list A) i a0 :
  tot X i l = Sum (seq i (length l)) (fun k => X k (nth (k - i) l a0)).
Proof.
  revert i. induction l as [|a l IH]; intros i; simpl; [reflexivity|]. rewrite Nat.sub_diag, IH. f_equal.
  apply Sum_ext. intros k Hk. apply in_seq in Hk. replace (k - i)%nat with (S (k - S i)) by lia. reflexivity.
Qed.

(** * Layer after layer

    What happens in layer l may depend on the tables of the layers below in any way, but not on its own table: [bad]
    gets the tables drawn so far, then its own.  Nothing is asked of the events within a layer. *)
Fixpoint anybad (bad : list A -> A -> bool) (hist ts : list A) : bool :=
  match ts with
  | [] => false
  | t :: ts' => orb (bad hist t) (anybad bad (hist ++ [t]) ts')
  end.

Theorem adaptive_union (bad : list A -> A -> bool) (delta : nat -> R) (ds : list (dist A)) (hist : list A) :
  (forall d, In d ds -> is_dist d) ->
  (forall j d h, nth_error ds j = Some d -> length h = (length hist + j)%nat -> Pr d (bad h) <= delta (length h)) ->
  Pr (draws ds) (anybad bad hist) <= Sum (seq (length hist) (length ds)) delta.
Proof.
  revert hist. induction ds as [|d ds IH]; intros hist Hd H.
  - unfold Pr, Ex. simpl. lra.
  - assert (Hds : is_dist (draws ds)) by (apply draws_dist; intros; apply Hd; now right).
    assert (Hd0 : is_dist d) by (apply Hd; now left).
    unfold Pr. rewrite Ex_draws_cons. simpl length. simpl seq. simpl Sum.
    apply Rle_trans with (Ex d (fun a => (if bad hist a then 1 else 0) + Sum (seq (S (length hist)) (length ds)) delta)).
    + apply Ex_le; [assumption|]. intros a.
      assert (K : Pr (draws ds) (anybad bad (hist ++ [a])) <= Sum (seq (S (length hist)) (length ds)) delta).
      { replace (S (length hist)) with (length (hist ++ [a])) by (rewrite app_length; simpl; lia).
        apply IH; [intros; apply Hd; now right|]. intros j d' h Hj Hh. apply (H (S j) d' h Hj).
        rewrite Hh, app_length. simpl. lia. }
      apply Rle_trans with ((if bad hist a then 1 else 0) + Pr (draws ds) (anybad bad (hist ++ [a]))); [|lra].
      rewrite <- (Ex_draws_const ds (if bad hist a then 1 else 0) Hds). unfold Pr, Ex. rewrite <- Sum_plus.
      apply Sum_le. intros z Hz. simpl anybad.
      assert (0 <= fst z) by now apply Hds.
      destruct (bad hist a), (anybad bad (hist ++ [a]) (snd z)); simpl; nra.
    + rewrite Ex_plus, Ex_const by assumption. apply Rplus_le_compat_r.
      apply (H 0%nat d hist eq_refl). lia.
Qed.

End Probability.

(** * The lattice as a distribution *)

Lemma Ex_lattice b f : Ex (lattice b) f = Sum (seq 0 (pow2 b)) f / INR (pow2 b).
Proof.
  unfold Ex, lattice. rewrite Sum_map. simpl. rewrite Sum_scal. unfold spacing, Rdiv. ring.
Qed.

Lemma lattice_dist b : is_dist (lattice b).
Proof.
  pose proof (INR_pow2_pos b) as P. split.
  - intros z Hz. unfold lattice in Hz. apply in_map_iff in Hz. destruct Hz as (j & <- & _). simpl. unfold spacing.
    left. apply Rdiv_lt_0_compat; lra.
  - unfold lattice. rewrite Sum_map. simpl. rewrite Sum_const, seq_length. unfold spacing. field. lra.
Qed.

(** The bias of one entry: the mean of its residual. *)
Definition bias (b : nat) (n : nat -> Z) (z : R) : R := Ex (lattice b) (resid b n z).

Lemma centred_sum N : Sum (seq 0 N) (fun i => INR i - (INR N - 1) / 2) = 0.
Proof.
  set (S := Sum _ _).
  assert (E : S = - S).
  { unfold S at 1. rewrite <- Sum_seq_rev. unfold S. rewrite <- Sum_opp. apply Sum_ext. intros i Hi. apply in_seq in Hi.
    rewrite !minus_INR by lia. simpl INR. field. }
  lra.
Qed.

(** 4.2: proxy and bias of one entry. *)
Theorem entry_bounds b eps n z k :
  write_path b eps n z ->
  Rabs (bias b n z) <= spacing b / 2 + eps /\
  subG (lattice b) (fun j => k * (resid b n z j - bias b n z)) (k^2 / 12).
Proof.
  intros H. destruct (residual_lattice b eps n z H) as (m & Hm & E). pose proof (INR_pow2_pos b) as P.
  assert (Em : bias b n z = m).
  { unfold bias. rewrite Ex_lattice. pose proof (E (fun r => r)) as E1. cbv beta in E1.
    change (Sum (seq 0 (pow2 b)) (resid b n z)) with (Sum (seq 0 (pow2 b)) (fun j => resid b n z j)). rewrite E1.
    rewrite Sum_plus, Sum_const, Sum_scal, centred_sum, seq_length. field. lra. }
  rewrite Em. split; [assumption|]. intros lam. rewrite Ex_lattice.
  rewrite (E (fun r => exp (lam * (k * (r - m))))).
  rewrite (Sum_ext _ _ (fun i => exp (lam * k * spacing b * (INR i - (INR (pow2 b) - 1) / 2)))).
  2: { intros i _. f_equal. ring. }
  fold (lat b (lam * k * spacing b)). apply Rle_trans with (1 := lattice_mgf b _).
  unfold spacing. set (N := INR (pow2 b)) in *.
  assert (K : (lam * k * (1 / N))^2 * (N^2 - 1) / 24 <= lam^2 * (k^2 / 12) / 2).
  { replace ((lam * k * (1 / N))^2 * (N^2 - 1) / 24) with ((lam * k)^2 / 24 - (lam * k * (1 / N))^2 / 24) by (field; lra).
    pose proof (pow2_ge_0 (lam * k * (1 / N))). lra. }
  destruct K as [K| ->]; [left; now apply exp_increasing|lra].
Qed.

(** * One cell: a token met by one query

    A table is a list of [n] integers.  [coef] is the weight of each table entry in the logit, scale of the logit times
    query times step: zero off the row and the channels the token uses.  [zz] is the key in units of its step, [pay] the
    payload written for each value of the dither. *)
Record cell := { coef : nat -> R; zz : nat -> R; pay : nat -> nat -> Z }.

Definition table (b n : nat) : dist (list nat) := draws (repeat (lattice b) n).
Definition cell_ok (b : nat) (eps : R) (n : nat) (cl : cell) : Prop :=
  forall i, (i < n)%nat -> write_path b eps (pay cl i) (zz cl i).
Definition cell_err (b : nat) (cl : cell) (tbl : list nat) : R :=
  tot (fun i j => coef cl i * resid b (pay cl i) (zz cl i) j) 0 tbl.
Definition cell_var (n : nat) (cl : cell) : R := Sum (seq 0 n) (fun i => (coef cl i)^2 / 12).
Definition cell_bias (b : nat) (eps : R) (n : nat) (cl : cell) : R :=
  (spacing b / 2 + eps) * Sum (seq 0 n) (fun i => Rabs (coef cl i)).
Definition cell_radius (b : nat) (eps kappa : R) (n : nat) (cl : cell) : R :=
  kappa * sqrt (cell_var n cl) + cell_bias b eps n cl.

Lemma table_dist b n : is_dist (table b n).
Proof. apply draws_dist. intros d Hd. apply repeat_spec in Hd. subst. apply lattice_dist. Qed.

Lemma nth_error_repeat {A} (x : A) n j y : nth_error (repeat x n) j = Some y -> y = x /\ (j < n)%nat.
Proof.
  intros H. split.
  - apply nth_error_In in H. now apply repeat_spec in H.
  - rewrite <- (repeat_length x n). apply nth_error_Some. congruence.
Qed.

(** 2.6, 4.3: the radius of one cell. *)
Theorem cell_tail b eps kappa n cl :
  cell_ok b eps n cl -> 0 <= kappa ->
  Pr (table b n) (exceeds (cell_err b cl) (cell_radius b eps kappa n cl)) <= 2 * exp (- (kappa^2 / 2)).
Proof.
  intros Hok Hk. pose proof (table_dist b n) as Hd.
  set (m := fun i => bias b (pay cl i) (zz cl i)).
  set (Y := tot (fun i j => coef cl i * (resid b (pay cl i) (zz cl i) j - m i)) 0).
  assert (HY : subG (table b n) Y (cell_var n cl)).
  { intros lam. unfold table, Y, cell_var.
    pose proof (subG_sum (fun i j => coef cl i * (resid b (pay cl i) (zz cl i) j - m i)) (fun i => (coef cl i)^2 / 12)
      (repeat (lattice b) n) 0) as K.
    rewrite repeat_length in K. apply K.
    - intros d Hdd. apply repeat_spec in Hdd. subst. apply lattice_dist.
    - intros j d Hj. apply nth_error_repeat in Hj. destruct Hj as [-> Hj]. simpl (0 + j)%nat. unfold m.
      exact (proj2 (entry_bounds b eps (pay cl j) (zz cl j) (coef cl j) (Hok j Hj))). }
  assert (Hv : 0 <= cell_var n cl).
  { apply Sum_nonneg. intros i _. pose proof (pow2_ge_0 (coef cl i)). lra. }
  apply Rle_trans with (2 := subG_tail (table b n) Y (cell_var n cl) kappa Hd HY Hv Hk).
  apply Ex_le_in; [assumption|]. intros z Hz. apply draws_length in Hz. rewrite repeat_length in Hz.
  assert (E : cell_err b cl (snd z) = Y (snd z) + Sum (seq 0 n) (fun i => coef cl i * m i)).
  { unfold Y, cell_err. rewrite <- Hz.
    rewrite (tot_ext (fun i j => coef cl i * (resid b (pay cl i) (zz cl i) j - m i))
      (fun i j => coef cl i * resid b (pay cl i) (zz cl i) j - coef cl i * m i)) by (intros; ring).
    rewrite (tot_minus (fun i j => coef cl i * resid b (pay cl i) (zz cl i) j)). ring. }
  assert (B : Rabs (Sum (seq 0 n) (fun i => coef cl i * m i)) <= cell_bias b eps n cl).
  { apply Rle_trans with (1 := Sum_Rabs _ _). unfold cell_bias. rewrite <- Sum_scal. apply Sum_le. intros i Hi.
    apply in_seq in Hi. rewrite Rabs_mult, Rmult_comm. apply Rmult_le_compat_r; [apply Rabs_pos|].
    apply (entry_bounds b eps (pay cl i) (zz cl i) 1). apply Hok. lia. }
  unfold exceeds. rewrite E. unfold cell_radius.
  destruct (Rlt_dec _ _) as [L|]; destruct (Rlt_dec _ _) as [L'|L']; try lra.
  exfalso. apply L'. pose proof (Rabs_triang (Y (snd z)) (Sum (seq 0 n) (fun i => coef cl i * m i))). lra.
Qed.

(** * A request (2.7, 4.4)

    [L] layers, each with its own table of [n] entries.  A row of attention is the cells of one query head at one metered
    query position, with the number S of tokens that its kappa was computed for, which must not be below the number of its
    cells; it may differ from row to row.  [rows h] are all the rows of the layer above the tables [h]: functions of the
    request and of the tables below, never of the layer's own table.  No independence between rows or cells is asked. *)

(** kappa for a local budget over S tokens. *)
Definition kappa_of (S : nat) (delta_loc : R) : R := sqrt (2 * ln (2 * INR S / delta_loc)).

Definition row_violated (b : nat) (eps delta_loc : R) (n : nat) (row : nat * list cell) (tbl : list nat) : bool :=
  existsb (fun cl => exceeds (cell_err b cl) (cell_radius b eps (kappa_of (fst row) delta_loc) n cl) tbl) (snd row).

Definition violated (b : nat) (eps delta_loc : R) (n : nat) (rows : list (list nat) -> list (nat * list cell)) :
  list (list nat) -> bool :=
  anybad (fun h tbl => existsb (fun row => row_violated b eps delta_loc n row tbl) (rows h)) [].

Definition row_ok (b : nat) (eps : R) (n : nat) (row : nat * list cell) : Prop :=
  (0 < fst row)%nat /\ (length (snd row) <= fst row)%nat /\ forall cl, In cl (snd row) -> cell_ok b eps n cl.

Lemma kappa_tail S delta_loc : (0 < S)%nat -> 0 < delta_loc <= 2 -> 2 * exp (- ((kappa_of S delta_loc)^2 / 2)) = delta_loc / INR S.
Proof.
  intros HS [H0 H1]. assert (PS : 1 <= INR S) by (replace 1 with (INR 1) by reflexivity; apply le_INR; lia).
  assert (Hq : 1 <= 2 * INR S / delta_loc).
  { apply Rmult_le_reg_r with delta_loc; [assumption|]. field_simplify; lra. }
  assert (Hl : 0 <= ln (2 * INR S / delta_loc)).
  { rewrite <- ln_1. destruct Hq as [Hq|<-]; [left; apply ln_increasing; lra|lra]. }
  unfold kappa_of. rewrite <- Rsqr_pow2, Rsqr_sqrt by lra.
  replace (2 * ln (2 * INR S / delta_loc) / 2) with (ln (2 * INR S / delta_loc)) by field.
  rewrite exp_Ropp, exp_ln by lra. field. lra.
Qed.

(** One row spends no more than the local budget. *)
Theorem row_budget b eps n delta_loc row :
  0 < delta_loc <= 2 -> row_ok b eps n row -> Pr (table b n) (row_violated b eps delta_loc n row) <= delta_loc.
Proof.
  intros Hd (HS & Hlen & Hok). set (S := fst row) in *.
  apply Rle_trans with (1 := union_bound (table b n) (snd row)
    (fun cl => exceeds (cell_err b cl) (cell_radius b eps (kappa_of S delta_loc) n cl)) (table_dist b n)).
  apply Rle_trans with (Sum (snd row) (fun _ => delta_loc / INR S)).
  - apply Sum_le. intros cl Hcl. rewrite <- kappa_tail by assumption. apply cell_tail; [now apply Hok|apply sqrt_pos].
  - rewrite Sum_const. assert (PS : 0 < INR S) by now apply lt_0_INR.
    apply Rle_trans with (INR S * (delta_loc / INR S)); [|apply Req_le; field; lra].
    apply Rmult_le_compat_r; [apply Rlt_le, Rdiv_lt_0_compat; lra|now apply le_INR].
Qed.

(** With H query heads and T metered query positions in each layer, the budget of the request is met. *)
Theorem request_budget b eps n L H T delta_req rows :
  (0 < L)%nat -> (0 < H)%nat -> (0 < T)%nat -> 0 < delta_req <= 1 ->
  let delta_loc := delta_req / (INR L * INR H * INR T) in
  (forall h, (length h < L)%nat ->
     (length (rows h) <= H * T)%nat /\ forall row, In row (rows h) -> row_ok b eps n row) ->
  Pr (draws (repeat (table b n) L)) (violated b eps delta_loc n rows) <= delta_req /\
  1 - delta_req <= Pr (draws (repeat (table b n) L)) (fun ts => negb (violated b eps delta_loc n rows ts)).
Proof.
  intros HL HH HT Hd delta_loc Hc.
  assert (P1 : forall k, (0 < k)%nat -> 1 <= INR k) by (intros k Hk; replace 1 with (INR 1) by reflexivity; apply le_INR; lia).
  pose proof (P1 L HL) as PL. pose proof (P1 H HH) as PH. pose proof (P1 T HT) as PT.
  assert (PLHT : 1 <= INR L * INR H * INR T).
  { assert (1 <= INR L * INR H) by nra. nra. }
  assert (Hloc : 0 < delta_loc <= 2).
  { unfold delta_loc. split; [apply Rdiv_lt_0_compat; lra|].
    apply Rmult_le_reg_r with (INR L * INR H * INR T); [lra|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. nra. }
  assert (K : Pr (draws (repeat (table b n) L)) (violated b eps delta_loc n rows) <= delta_req).
  { unfold violated.
    pose proof (adaptive_union (fun h tbl => existsb (fun row => row_violated b eps delta_loc n row tbl) (rows h))
      (fun _ => INR (H * T) * delta_loc) (repeat (table b n) L) []) as K.
    rewrite Sum_const, seq_length, repeat_length in K.
    replace delta_req with (INR L * (INR (H * T) * delta_loc)) by (rewrite mult_INR; unfold delta_loc; field; lra).
    apply K.
    - intros d Hdd. apply repeat_spec in Hdd. subst. apply table_dist.
    - intros j d h Hj Hh. apply nth_error_repeat in Hj. destruct Hj as [-> Hj]. simpl in Hh.
      destruct (Hc h ltac:(lia)) as [HM Hr].
      apply Rle_trans with (1 := union_bound (table b n) (rows h) (row_violated b eps delta_loc n) (table_dist b n)).
      apply Rle_trans with (Sum (rows h) (fun _ => delta_loc)).
      + apply Sum_le. intros row Hrow. apply row_budget; [assumption|now apply Hr].
      + rewrite Sum_const. apply Rmult_le_compat_r; [lra|now apply le_INR]. }
  split; [exact K|].
  assert (Hdist : is_dist (draws (repeat (table b n) L))).
  { apply draws_dist. intros d Hdd. apply repeat_spec in Hdd. subst. apply table_dist. }
  set (V := violated b eps delta_loc n rows) in *. set (D := draws (repeat (table b n) L)) in *.
  assert (E : Pr D V + Pr D (fun ts => negb (V ts)) = 1).
  { unfold Pr. rewrite <- Ex_plus. transitivity (Ex D (fun _ => 1)); [|now apply Ex_const].
    apply Ex_ext. intros ts. destruct (V ts); simpl; lra. }
  lra.
Qed.

(** What the good event says: in every layer every error is within its radius. *)
Lemma anybad_false {A : Type} (bad : list A -> A -> bool) (hist ts h rest : list A) t :
  anybad bad hist ts = false -> ts = h ++ t :: rest -> bad (hist ++ h) t = false.
Proof.
  revert hist h. induction ts as [|a ts IH]; intros hist h H E; [destruct h; discriminate|].
  simpl in H. apply Bool.orb_false_iff in H. destruct H as [H1 H2]. destruct h as [|b h]; simpl in E; inversion E; subst.
  - now rewrite app_nil_r.
  - replace (hist ++ b :: h) with ((hist ++ [b]) ++ h) by (rewrite <- app_assoc; reflexivity). now apply IH.
Qed.

Theorem not_violated b eps delta_loc n rows ts h tbl rest row cl :
  violated b eps delta_loc n rows ts = false -> ts = h ++ tbl :: rest -> In row (rows h) -> In cl (snd row) ->
  Rabs (cell_err b cl tbl) <= cell_radius b eps (kappa_of (fst row) delta_loc) n cl.
Proof.
  intros H E Hr Hcl. pose proof (anybad_false _ [] ts h rest tbl H E) as K. simpl in K.
  assert (K1 : row_violated b eps delta_loc n row tbl = false).
  { destruct (row_violated b eps delta_loc n row tbl) eqn:Q; [|reflexivity].
    rewrite <- K. symmetry. apply existsb_exists. now exists row. }
  assert (K2 : exceeds (cell_err b cl) (cell_radius b eps (kappa_of (fst row) delta_loc) n cl) tbl = false).
  { destruct (exceeds (cell_err b cl) (cell_radius b eps (kappa_of (fst row) delta_loc) n cl) tbl) eqn:Q; [|reflexivity].
    rewrite <- K1. symmetry. apply existsb_exists. now exists cl. }
  unfold exceeds in K2. destruct (Rlt_dec _ _); [discriminate|lra].
Qed.

(** * One periodic table

    Token t uses row t mod P of a table of P rows of d channels; its coefficients are zero in the other rows.  Rows are
    shared by many tokens, which the theorem above does not mind. *)
Definition row_cell (d r : nat) (qs z : nat -> R) (n : nat -> nat -> Z) : cell :=
  {| coef := fun i => if Nat.eqb (i / d) r then qs (i mod d)%nat else 0;
     zz := fun i => z (i mod d)%nat;
     pay := fun i => n (i mod d)%nat |}.

Lemma Sum_row P d r (f : nat -> R) : (r < P)%nat -> (0 < d)%nat ->
  Sum (seq 0 (P * d)) (fun i => if Nat.eqb (i / d) r then f i else 0) = Sum (seq 0 d) (fun c => f (r * d + c)%nat).
Proof.
  intros Hr Hd. replace (P * d)%nat with (r * d + (d + (P - r - 1) * d))%nat by nia.
  rewrite seq_app, seq_app, !Sum_app. simpl (0 + r * d)%nat.
  rewrite (Sum_0 (seq 0 (r * d))).
  2: { intros i Hi. apply in_seq in Hi. destruct (Nat.eqb_spec (i / d) r) as [E|]; [|reflexivity].
       assert (i / d < r)%nat by (apply Nat.div_lt_upper_bound; nia). lia. }
  rewrite (Sum_0 (seq (r * d + d) _)).
  2: { intros i Hi. apply in_seq in Hi. destruct (Nat.eqb_spec (i / d) r) as [E|]; [|reflexivity].
       assert (S r <= i / d)%nat by (apply Nat.div_le_lower_bound; nia). lia. }
  rewrite Rplus_0_l, Rplus_0_r, Sum_seq_shift. apply Sum_ext. intros c Hc. apply in_seq in Hc.
  replace ((r * d + c) / d)%nat with r; [now rewrite Nat.eqb_refl|].
  symmetry. rewrite Nat.div_add_l by lia. rewrite Nat.div_small by lia. lia.
Qed.

Lemma row_mod d r c : (c < d)%nat -> ((r * d + c) mod d = c)%nat.
Proof. intros H. rewrite Nat.add_comm, Nat.mod_add by lia. now apply Nat.mod_small. Qed.

(** Error and proxy of such a cell are those of its row alone. *)
Theorem row_cell_meaning b P d r qs z n tbl :
  (r < P)%nat -> (0 < d)%nat -> length tbl = (P * d)%nat ->
  cell_err b (row_cell d r qs z n) tbl
    = Sum (seq 0 d) (fun c => qs c * resid b (n c) (z c) (nth (r * d + c) tbl 0%nat)) /\
  cell_var (P * d) (row_cell d r qs z n) = Sum (seq 0 d) (fun c => (qs c)^2) / 12.
Proof.
  intros Hr Hd Hl. split.
  - unfold cell_err. rewrite (tot_seq _ _ _ 0%nat), Hl. simpl.
    rewrite (Sum_ext _ _ (fun i => if Nat.eqb (i / d) r
      then qs (i mod d)%nat * resid b (n (i mod d)%nat) (z (i mod d)%nat) (nth i tbl 0%nat) else 0)).
    2: { intros i _. rewrite Nat.sub_0_r. destruct (Nat.eqb (i / d) r); ring. }
    rewrite (Sum_row P d r (fun i => qs (i mod d)%nat * resid b (n (i mod d)%nat) (z (i mod d)%nat) (nth i tbl 0%nat)) Hr Hd).
    apply Sum_ext. intros c Hc. apply in_seq in Hc. rewrite row_mod by lia. reflexivity.
  - unfold cell_var. simpl.
    rewrite (Sum_ext _ _ (fun i => if Nat.eqb (i / d) r then (qs (i mod d)%nat)^2 / 12 else 0)).
    2: { intros i _. destruct (Nat.eqb (i / d) r); field. }
    rewrite (Sum_row P d r (fun i => (qs (i mod d)%nat)^2 / 12) Hr Hd). rewrite <- Sum_div. apply Sum_ext.
    intros c Hc. apply in_seq in Hc. rewrite row_mod by lia. reflexivity.
Qed.
